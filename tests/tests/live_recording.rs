//! Recording, as root, on a real engine: the replay tells what the live agent told, and no text is in the file.
//!
//! Run by `cargo xtask test`, as `live_engine`. `INFERTAP_KEEP_TRACE=FILE` keeps the recording: that is how those in
//! `tests/traces` are made.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{
    agent::{Agent, BINARY_VARIABLE, Record, Start},
    child::Child,
    compare::compare,
    engines::{self, Engine, Kind, MODEL},
    load::{Load, Mix, Plan, mixed},
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// In every prompt, name and header that this test sends; five bytes of it are no word of a protocol.
const SECRET: &str = "Zq7vault9931";

fn kind() -> Kind {
    std::env::var("INFERTAP_TEST_ENGINE").map_or(Kind::Llama, |name| name.parse().unwrap())
}

fn start_engine() -> Engine {
    let target = std::env::var_os("INFERTAP_TEST_TARGET").expect("run live tests with `cargo xtask test`");
    let folder = engines::folder(Path::new(&target)).unwrap();
    Engine::start(kind(), &folder, &engines::Start::default()).unwrap()
}

fn agent_command(arguments: &[&str]) -> Command {
    let binary = std::env::var_os(BINARY_VARIABLE).expect("run live tests with `cargo xtask test`");
    let mut command = Command::new(binary);
    command.args(arguments);
    command
}

/// A recorder that watches the engine.
fn start_recorder(file: &Path, engine: &Engine, log: &Path) -> Child {
    let mut child = Child::spawn(
        "the recorder",
        agent_command(&["record", file.to_str().unwrap()]),
        log,
    )
    .unwrap();
    // Functions of the engine are attached to after its sockets.
    let watching = format!("watching process {}", engine.pid());
    let calls = "probe call_llama_update_slots is up";
    child
        .wait_ready(Duration::from_secs(20), || {
            std::fs::read_to_string(log).is_ok_and(|text| text.contains(&watching) && text.contains(calls))
        })
        .unwrap();
    child
}

fn replay(file: &Path, engine: &Engine) -> Vec<Record> {
    let output = agent_command(&["replay", "--json", file.to_str().unwrap()])
        .output()
        .unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    println!("{notes}");
    assert!(output.status.success() && !notes.contains("warning"), "{notes}");
    let suffix = format!("-{}", engine.address.port());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Record>(line).unwrap())
        .filter(|record| record.engine.ends_with(&suffix))
        .collect()
}

/// A request each for what the mix leaves out.
fn special() -> Vec<Plan> {
    let tools = json!([{"type": "function", "function": {"name": format!("get_{SECRET}"), "description": SECRET,
        "parameters": {"type": "object", "properties": {SECRET: {"type": "string"}}, "required": [SECRET]}}}]);
    let ask = |name: &str, extra: serde_json::Value| Plan::chat(name, MODEL, SECRET, &extra);
    vec![
        ask("tools", json!({"tools": tools, "max_tokens": 8, "user": SECRET})),
        ask(
            "tools stream",
            json!({"tools": tools, "max_tokens": 8, "stream": true}),
        ),
        ask(
            "two choices",
            json!({"n": 2, "max_tokens": 6, "stream": true, "stream_options": {"include_usage": true}}),
        ),
        ask(
            "log probabilities",
            json!({"logprobs": true, "top_logprobs": 2, "max_tokens": 4}),
        ),
        ask(
            "stop string",
            json!({"stop": [SECRET, "e"], "max_tokens": 12, "metadata": {"id": SECRET}}),
        ),
    ]
}

fn plans() -> Vec<Plan> {
    let mix = Mix {
        model: MODEL.to_owned(),
        seed: 3,
        prompt_words: (5, 40),
        max_tokens: (4, 12),
        checks_model: kind() == Kind::Vllm,
    };
    let mut plans: Vec<Plan> = mixed(mix).take(60).collect();
    for (index, mut plan) in special().into_iter().enumerate() {
        plan = plan.traced(format!("{:032x}", 0xabc0 + index));
        plan.headers
            .push(("Authorization".to_owned(), format!("Bearer {SECRET}")));
        plan.headers.push((format!("X-{SECRET}"), SECRET.to_owned()));
        plan.path = format!("{}?key={SECRET}", plan.path);
        plans.insert(7 * (index + 1), plan);
    }
    for (index, plan) in plans.iter_mut().enumerate() {
        plan.index = index;
        // llama.cpp's server closes a connection behind a stream without a word; a request that it meets there is lost.
        let streamed = String::from_utf8_lossy(&plan.body).contains("\"stream\":true");
        plan.close |= kind() == Kind::Llama && streamed;
    }
    plans
}

/// What two agents that watch the same requests must agree on: all but their own ids and clocks.
fn told(records: &[Record]) -> Vec<String> {
    let mut told: Vec<String> = records
        .iter()
        .map(|r| {
            format!(
                "{:?} {} {} {} {} {} {:?} {:?} {:?} {:?} {} {} {} {:?} {:?}",
                r.response_id,
                r.engine,
                r.model,
                r.protocol,
                r.streamed,
                r.status,
                r.http_status,
                r.finish_reason,
                r.input_tokens,
                r.output_tokens,
                r.chunks,
                r.request_bytes,
                r.response_bytes,
                r.sources,
                r.incomplete
            )
        })
        .collect();
    told.sort();
    told
}

#[test]
fn a_replay_tells_what_the_live_agent_told_and_holds_no_text() {
    let engine = start_engine();
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&Start::for_test(folder.path(), &[]).unwrap()).unwrap();
    let suffix = format!("-{}", engine.address.port());
    let started = Instant::now();
    let sees_calls = || {
        let engines = agent.engines().unwrap();
        engines["engines"].as_array().unwrap().iter().any(|engine| {
            engine["id"].as_str().is_some_and(|id| id.ends_with(&suffix))
                && engine["coverage"]["slots"] == true
        })
    };
    while !sees_calls() {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{}",
            agent.log_tail()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let file = folder.path().join("mixed.infertap");
    let mut recorder = start_recorder(&file, &engine, &folder.path().join("recorder.log"));

    let plans = plans();
    let count = plans.len();
    let load = Load {
        address: engine.address.clone(),
        concurrency: 4,
        core: None,
    };
    let truths = load.run_all(plans);
    let live = agent
        .wait_requests(count, Duration::from_secs(10), |record| {
            record.engine.ends_with(&suffix)
        })
        .unwrap();
    let ended = recorder.stop();
    assert!(
        ended.is_some_and(|status| status.success()),
        "{}",
        recorder.log_tail()
    );

    if let Some(keep) = std::env::var_os("INFERTAP_KEEP_TRACE") {
        std::fs::copy(&file, PathBuf::from(keep)).unwrap();
    }

    let replayed = replay(&file, &engine);
    assert_eq!(told(&replayed), told(&live));

    let bytes = std::fs::read(&file).unwrap();
    println!("{count} requests in a recording of {} bytes", bytes.len());
    let plain = raw_frames(&file);
    for part in SECRET
        .as_bytes()
        .windows(5)
        .chain(["Question", "autumn", "jumps over"].map(str::as_bytes))
    {
        assert!(
            plain.windows(part.len()).all(|window| window != part),
            "`{}` is in the recording",
            String::from_utf8_lossy(part)
        );
    }
    let comparison = compare(&truths, &replayed);
    println!("{}", comparison.report());
    assert!(
        comparison.problems.is_empty(),
        "{}",
        comparison.problems.join("\n")
    );
}

/// All payloads of a recording, one behind the other.
fn raw_frames(file: &Path) -> Vec<u8> {
    use infertap::recording::{Frame, Reader};
    let mut reader = Reader::open(file).unwrap();
    let mut out = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        match frame {
            Frame::Record(record) => out.extend_from_slice(&record[infertap_abi::HEADER_LEN..]),
            other => out.extend(format!("{other:?}").bytes()),
        }
    }
    out
}
