//! The agent, as root, on real tokenizers: Hugging Face's in a Python server, and llama.cpp's in its own.
//!
//! Run by `cargo xtask test`, which sets the engines up and builds the agent.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use infertap_tests::{
    agent::{Agent, Record, Start},
    engines::{self, Engine, Kind, MODEL},
    http,
    load::{Connection, Load, Mix, Outcome, Plan, mixed},
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

fn engines_folder() -> PathBuf {
    let target = std::env::var_os("INFERTAP_TEST_TARGET").expect("run live tests with `cargo xtask test`");
    engines::folder(Path::new(&target)).unwrap()
}

/// An agent that watches this process, once it sees its tokenizer; and the process's engine.
fn watch(folder: &Path, pid: u32) -> (Agent, String) {
    let agent = Agent::start(&Start::for_test(folder, &["--pid", &pid.to_string()]).unwrap()).unwrap();
    let id = agent.wait_watching(pid, Duration::from_secs(10)).unwrap();
    let start = Instant::now();
    loop {
        let metrics = agent.metrics().unwrap();
        let labels = [("engine", id.as_str()), ("aspect", "tokenizer_calls")];
        if metrics.sum("infertap_engine_coverage", &labels) > 0.5 {
            return (agent, id);
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "its tokenizer is not seen\n{}",
            agent.log_tail()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tokenizer calls told so far: tied, and unassigned.
fn calls(agent: &Agent) -> (u64, u64) {
    let metrics = agent.metrics().unwrap();
    let of = |outcome| {
        metrics
            .sum("infertap_tokenizer_calls_total", &[("outcome", outcome)])
            .round() as u64
    };
    (of("tied"), of("unassigned"))
}

fn wait_calls(agent: &Agent, expected: (u64, u64)) {
    let start = Instant::now();
    while calls(agent) != expected {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{:?} and not {expected:?}\n{}",
            calls(agent),
            agent.log_tail()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn hugging_face_tokenizers_are_seen_text_by_text_whichever_thread_encodes() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) =
        engines::tokenizing_server(&engines_folder(), &folder.path().join("server.log")).unwrap();
    let (agent, engine) = watch(folder.path(), server.pid());
    // One at a time: each call can only be for the one request that there is.
    let mut connection = Connection::open(&address).unwrap();
    let lengths = [1_usize, 7, 400, 20_000];
    for length in lengths {
        let plan = Plan::completion(
            "text",
            MODEL,
            &"y".repeat(length),
            &json!({"user": format!("cmpl-{length}")}),
        );
        let truth = connection.exchange(&plan);
        assert_eq!(
            (truth.outcome, truth.prompt_tokens),
            (Outcome::Complete, Some(length as u64))
        );
    }
    let records = agent
        .wait_requests(lengths.len(), Duration::from_secs(10), |record| {
            record.engine == engine
        })
        .unwrap();
    let encoded = http::get(&address, "/encoded").unwrap().json().unwrap();
    for length in lengths {
        let id = format!("cmpl-{length}");
        let record = agent.the_record(&records, &id, |record| {
            record.response_id.as_deref() == Some(id.as_str())
        });
        let seen = record.tokenize_s.expect("one request, one call");
        // What Python measured has the call within it.
        let outside = encoded[id.as_str()].as_f64().unwrap();
        assert!(seen > 0.0 && seen <= outside, "{id}: {seen} of {outside}");
        println!(
            "{length} tokens: {:.1} µs, {:.1} µs as Python saw it",
            seen * 1e6,
            outside * 1e6
        );
    }
    wait_calls(&agent, (lengths.len() as u64, 0));
    // And at once, in Python's threads and in those that share a batch: for no request, and none is missed or counted
    // twice.
    let texts = http::get(&address, "/threads").unwrap().json().unwrap()["texts"]
        .as_u64()
        .unwrap();
    assert_eq!(texts, 280);
    wait_calls(&agent, (lengths.len() as u64, texts));
    let dropped = agent.metrics().unwrap().sum("infertap_events_dropped_total", &[]);
    assert!(dropped.abs() < 0.5, "{dropped} events were dropped");
}

#[test]
fn every_request_of_llama_cpp_has_the_time_that_its_prompt_took_to_tokenize() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::start(Kind::Llama, &engines_folder(), &engines::Start::default()).unwrap();
    let (agent, id) = watch(folder.path(), engine.pid());
    let mix = Mix {
        model: MODEL.to_owned(),
        seed: 11,
        prompt_words: (5, 60),
        max_tokens: (2, 8),
        checks_model: false,
    };
    let load = Load {
        address: engine.address.clone(),
        concurrency: 6,
        core: None,
    };
    let truths = load.run_all(mixed(mix).take(40).collect());
    let served = truths.iter().filter(|truth| truth.status == Some(200)).count();
    assert!(served >= 20, "only {served} were served");
    let records = agent
        .wait_requests(truths.len(), Duration::from_secs(20), |record| {
            record.engine == id
        })
        .unwrap();
    let whole = |record: &&Record| record.status == "ok";
    let (mut sum, mut count) = (0.0, 0_u32);
    for record in records.iter().filter(whole) {
        let seconds = record
            .tokenize_s
            .unwrap_or_else(|| panic!("{record:?}\n{}", agent.log_tail()));
        assert!(seconds > 0.0 && Some(seconds) < record.e2e_s, "{record:?}");
        sum += seconds;
        count += 1;
    }
    assert!(count >= 20, "only {count} ended well");
    println!(
        "{count} requests, {:.1} µs each in the tokenizer",
        sum / f64::from(count) * 1e6
    );
    let metrics = agent.metrics().unwrap();
    let observed = metrics.sum("llm_tokenize_seconds_count", &[("model", MODEL)]);
    assert!(observed >= f64::from(count) - 0.5, "{observed} of {count}");
}
