//! The agent, as root, on a real engine, which it has to find by itself.
//!
//! Run by `cargo xtask test`, which sets the engine up and builds the agent. `INFERTAP_TEST_ENGINE` names the engine
//! (`llama` or `vllm`), `INFERTAP_TEST_TARGET` the folder that holds `engines/`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{
    agent::{Agent, Record, Start},
    bpf_census, clock,
    compare::compare,
    engines::{self, Engine, Kind, MODEL},
    load::{ClientTruth, Connection, Load, Mix, Outcome, Plan, mixed},
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// One engine serves all tests in turn; starting vLLM takes a minute.
static ENGINE: LazyLock<Mutex<Engine>> = LazyLock::new(|| Mutex::new(start_engine(0)));

fn kind() -> Kind {
    std::env::var("INFERTAP_TEST_ENGINE").map_or(Kind::Llama, |name| name.parse().unwrap())
}

fn engines_folder() -> PathBuf {
    let target = std::env::var_os("INFERTAP_TEST_TARGET").expect("run live tests with `cargo xtask test`");
    engines::folder(Path::new(&target)).unwrap()
}

fn start_engine(port: u16) -> Engine {
    Engine::start(
        kind(),
        &engines_folder(),
        &engines::Start {
            port,
            ..engines::Start::default()
        },
    )
    .unwrap()
}

fn engine() -> MutexGuard<'static, Engine> {
    ENGINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The agent on whatever it discovers, and only the requests of this engine: others may serve on this host too.
struct Watch {
    agent: Agent,
    id: String,
    _folder: tempfile::TempDir,
}

fn watch(engine: &Engine) -> Watch {
    watch_with(engine, "")
}

/// With this configuration.
fn watch_with(engine: &Engine, config: &str) -> Watch {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("infertap.toml");
    std::fs::write(&file, config).unwrap();
    let start = Start::for_test(folder.path(), &["--config", file.to_str().unwrap()]);
    let agent = Agent::start(&start.unwrap()).unwrap();
    let id = agent.wait_serving(engine.pid(), Duration::from_secs(10)).unwrap();
    Watch {
        agent,
        id,
        _folder: folder,
    }
}

impl Watch {
    fn records(&self, count: usize) -> Vec<Record> {
        self.agent
            .wait_requests(count, Duration::from_secs(10), |record| record.engine == self.id)
            .unwrap()
    }
}

fn stream(max_tokens: u32) -> Plan {
    let extra = json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": max_tokens,
        "ignore_eos": true, "temperature": 0});
    Plan::chat("stream", MODEL, "Tell me a long story.", &extra)
}

/// A client on the last core.
fn load(engine: &Engine, concurrency: usize) -> Load {
    Load {
        address: engine.address.clone(),
        concurrency,
        core: Some(clock::cores() - 1),
    }
}

#[test]
fn two_hundred_mixed_requests_are_each_seen_once_and_right() {
    let engine = engine();
    // The last core is the client's: what computes leaves it free.
    let generation = || {
        let truths = load(&engine, 1).run_all(vec![stream(64)]);
        anyhow::ensure!(truths[0].status == Some(200), "{:?}", truths[0]);
        Ok(())
    };
    let pinned = engines::compute::keep_on_core(engine.pid(), 0, generation).unwrap();
    println!("{pinned} computing threads kept on core 0");
    let watch = watch(&engine);
    let mix = Mix {
        model: MODEL.to_owned(),
        seed: 7,
        prompt_words: (5, 60),
        max_tokens: (4, 32),
        checks_model: kind() == Kind::Vllm,
    };
    let load = load(&engine, 8);
    let start = Instant::now();
    let truths = load.run_all(mixed(mix).take(200).collect());
    println!("200 requests in {:.1} s", start.elapsed().as_secs_f64());
    let records = watch.records(200);
    let comparison = compare(&truths, &records);
    println!("{}", comparison.report());
    let problems = &comparison.problems;
    assert!(
        problems.is_empty(),
        "{} problems:\n{}\n{}",
        problems.len(),
        problems.join("\n"),
        watch.agent.log_tail()
    );
    let with_usage = truths
        .iter()
        .filter(|truth| truth.completion_tokens.is_some())
        .count();
    assert!(with_usage >= 100, "only {with_usage} responses carried usage");
    assert!(comparison.ttft.len() >= 100 && comparison.e2e.len() >= 150);
    assert!(
        comparison.ttft.percentile(95.0) <= 0.002,
        "TTFT is off by more than 2 ms at P95"
    );
    assert!(
        comparison.e2e.percentile(95.0) <= 0.002,
        "end-to-end time is off by more than 2 ms at P95"
    );

    let metrics = watch.agent.metrics().unwrap();
    // Tokens are counted by model, whichever engines of this host serve it.
    let all = watch.agent.requests().unwrap();
    let told = |of: fn(&Record) -> Option<u64>| {
        let of_model = all.iter().filter(|record| record.model == MODEL);
        of_model.filter_map(of).sum::<u64>() as f64
    };
    for (name, told) in [
        ("llm_input_tokens_total", told(|record| record.input_tokens)),
        ("llm_output_tokens_total", told(|record| record.output_tokens)),
    ] {
        let counted = metrics.sum(name, &[("model", MODEL)]);
        assert!(
            (counted - told).abs() < 0.5,
            "{name} is {counted}, the requests tell {told}"
        );
    }
    let running = metrics.sum("llm_requests_running", &[("engine", &watch.id)]);
    assert!(running.abs() < 0.5, "{running} requests are still said to run");
    let dropped = metrics.sum("infertap_events_dropped_total", &[]);
    assert!(dropped.abs() < 0.5, "{dropped} events were dropped");
}

#[test]
fn an_agent_that_comes_late_says_so_and_gets_the_next_request_right() {
    let engine = engine();
    let mut connection = Connection::open(&engine.address).unwrap();
    let long = stream(600);
    let mut first = connection.send(&long);
    std::thread::sleep(Duration::from_millis(700));
    let watch = watch(&engine);
    connection.receive(&long, &mut first);
    // llama.cpp closes after a streamed response; the scripted server's tests stay on one connection.
    if !connection.is_alive() {
        connection = Connection::open(&engine.address).unwrap();
    }
    let second = connection.exchange(&stream(10));
    assert_eq!(
        (first.outcome, second.outcome),
        (Outcome::Complete, Outcome::Complete)
    );
    let records = watch.records(2);
    let of = |truth: &ClientTruth| {
        records
            .iter()
            .filter(|record| record.response_id == truth.response_id)
            .cloned()
            .collect::<Vec<_>>()
    };
    let late = of(&first);
    assert_eq!(late.len(), 1, "{records:#?}\n{}", watch.agent.log_tail());
    assert_eq!(late[0].status, "incomplete");
    let after = of(&second);
    let problems = compare(&[second], &after).problems;
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_killed_agent_disturbs_nothing_and_leaves_no_program() {
    let mut engine = engine();
    let watch = watch(&engine);
    let programs = bpf_census::programs_of(watch.agent.pid()).unwrap();
    assert!(!programs.is_empty());
    let mut connection = Connection::open(&engine.address).unwrap();
    let plan = stream(100);
    let mut truth = connection.send(&plan);
    std::thread::sleep(Duration::from_millis(200));
    watch.agent.kill();
    connection.receive(&plan, &mut truth);
    assert_eq!(
        (truth.outcome, truth.completion_tokens),
        (Outcome::Complete, Some(100)),
        "{truth:?}"
    );
    assert!(engine.is_running());
    let start = Instant::now();
    while !(&bpf_census::loaded_programs().unwrap() & &programs).is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "programs of the killed agent are still loaded"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_restarted_engine_is_found_within_two_seconds() {
    let mut shared = engine();
    let watch = watch(&shared);
    let port = shared.address.port();
    let old = std::mem::replace(&mut *shared, start_engine(0));
    old.stop();
    // The one that took its place serves the other tests; this one is only for this test.
    let restarted = start_engine(port);
    let served = Instant::now();
    let id = watch
        .agent
        .wait_serving(restarted.pid(), Duration::from_secs(10))
        .unwrap();
    let took = served.elapsed();
    assert_eq!(id, watch.id, "a restarted engine keeps its id");
    println!("the restarted engine was watched {took:?} after it served");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let truth = Connection::open(&restarted.address).unwrap().exchange(&stream(5));
    let records = watch.records(1);
    let problems = compare(std::slice::from_ref(&truth), &records).problems;
    assert!(problems.is_empty(), "{problems:#?}\n{}", watch.agent.log_tail());
}

#[test]
fn what_nobody_tells_is_counted_with_the_engines_own_tokenizer() {
    let engine = engine();
    let watch = watch_with(&engine, "[engine]\nhooks = false\n");
    let load = load(&engine, 1);
    let prompts = [
        "Tell me a long story.",
        "今天天气很好，我们一起去公园散步吧。",
        "def f(x):\n    return [x ** 2 for x in range(10)]  # 🙂",
    ];
    // What the engine itself counts.
    let whole = json!({"max_tokens": 1});
    let truths = load.run_all(
        prompts
            .map(|prompt| Plan::chat("whole", MODEL, prompt, &whole))
            .to_vec(),
    );
    let expected: Vec<Option<u64>> = truths.iter().map(|truth| truth.prompt_tokens).collect();
    assert!(expected.iter().all(Option::is_some), "{truths:?}");
    // Broken off before their end, so that nothing tells what they took.
    let endless = json!({"stream": true, "max_tokens": 2000, "ignore_eos": true});
    let broken = prompts.map(|prompt| Plan {
        cancel_after: Some(4),
        ..Plan::chat("broken", MODEL, prompt, &endless)
    });
    load.run_all(broken.to_vec());
    let mut records = watch.records(2 * prompts.len());
    records.retain(|record| record.streamed);
    records.sort_by_key(|record| record.t0_ns);
    let counted: Vec<Option<u64>> = records.iter().map(|record| record.input_tokens).collect();
    assert_eq!(counted, expected, "{}", watch.agent.log_tail());
    for record in &records {
        assert_eq!(
            record.sources.input_tokens.as_deref(),
            Some("tokenizer"),
            "{record:?}"
        );
        assert_eq!(record.status, "cancelled");
        assert!(record.output_tokens >= Some(4), "{record:?}");
    }
    let metrics = watch.agent.metrics().unwrap();
    let counts = metrics.sum("infertap_token_counts_total", &[("outcome", "counted")]);
    assert!(counts >= prompts.len() as f64, "{counts}");
    let told = metrics.sum(
        "llm_token_source_total",
        &[("source", "tokenizer"), ("direction", "input")],
    );
    assert!(told >= prompts.len() as f64, "{told}");
}
