//! Who used how much: counted by scene and model, told by `infertap cost`, and here again after a kill.
//!
//! Owns: what the ledger tells of requests whose tokens the client knows. Refuses: sums over keys and time (the core's
//! tests).

use super::*;
use std::process::Command;

fn asked(agent: &Agent, arguments: &[&str]) -> String {
    let address = agent.address.to_string();
    let binary = std::env::var_os(infertap_tests::agent::BINARY_VARIABLE).unwrap();
    let output = Command::new(binary)
        .args(arguments)
        .args(["--agent", &address])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn answered(agent: &Agent, arguments: &[&str]) -> Value {
    serde_json::from_str(&asked(agent, &[arguments, &["--json"]].concat())).unwrap()
}

/// Name → requests, input and output tokens, requests near the limit.
fn rows(answer: &Value) -> Vec<(String, u64, u64, u64, Option<u64>)> {
    let rows = answer["rows"].as_array().unwrap().iter();
    let mut rows: Vec<_> = rows
        .map(|row| {
            let number = |name: &str| row[name].as_u64().unwrap();
            let name = row["name"].as_str().unwrap().to_owned();
            let near = row["near_context_limit"].as_u64();
            (
                name,
                number("requests"),
                number("input_tokens"),
                number("output_tokens"),
                near,
            )
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn usage_is_what_clients_were_told_and_outlives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let config = folder.path().join("agent.toml");
    std::fs::write(
        &config,
        "[[scene]]\nname = \"search\"\nmodel = [\"large\"]\n[[context_limit]]\nmodel = \"large\"\ntokens = 1000\n",
    )
    .unwrap();
    let store = format!("store.path={}", folder.path().join("store.db").display());
    let arguments = ["--config", config.to_str().unwrap(), "--set", &store];
    let (agent, engine) = watch(folder.path(), &server, &arguments);
    let mut connection = Connection::open(&server.address).unwrap();
    let mut send = |model: &str, prompt: u32, chunks: u32| {
        let script = json!({"chunks": chunks, "prompt_tokens": prompt});
        let extra = json!({"stream": true, "stream_options": {"include_usage": true}, "script": script});
        let truth = connection.exchange(&Plan::chat("usage", model, "hello", &extra));
        assert_eq!(truth.outcome, Outcome::Complete);
        truth
    };
    let mut truths = vec![
        send("large", 700, 20),
        send("large", 890, 20),
        send("small", 30, 5),
        send("small", 5000, 7),
    ];
    agent
        .wait_requests(4, Duration::from_secs(5), |record| record.engine == engine)
        .unwrap();
    let before = rows(&answered(&agent, &["cost", "--by", "model"]));
    let expected = |model: &str, more: u64| {
        let (input, output) = match model {
            "large" => (1590, 40),
            _ => (5030, 12),
        };
        (model.to_owned(), 2 + more, input + more * 30, output + more * 5)
    };
    let told: Vec<_> = before
        .iter()
        .cloned()
        .map(|(name, n, input, output, _)| (name, n, input, output))
        .collect();
    assert_eq!(
        told,
        [expected("large", 0), expected("small", 0)],
        "{}",
        agent.log_tail()
    );
    let near: Vec<_> = before.iter().map(|row| row.4).collect();
    assert_eq!(
        near,
        [Some(1), None],
        "910 of 1000 tokens, and a model without a limit"
    );
    let sum = |truths: &[ClientTruth]| {
        let tokens = |truth: &ClientTruth| truth.prompt_tokens.unwrap() + truth.completion_tokens.unwrap();
        truths.iter().map(tokens).sum::<u64>()
    };
    let by_scene = answered(&agent, &["cost"]);
    let total = &by_scene["total"];
    assert_eq!(
        total["input_tokens"].as_u64().unwrap() + total["output_tokens"].as_u64().unwrap(),
        sum(&truths)
    );
    let scenes: Vec<String> = rows(&by_scene).into_iter().map(|row| row.0).collect();
    assert_eq!(scenes, ["default", "search"]);
    let clients = rows(&answered(&agent, &["cost", "--by", "client"]));
    assert_eq!(clients, [("127.0.0.1".to_owned(), 4, 6620, 52, Some(1))]);
    let metrics = agent.metrics().unwrap();
    let near = metrics.sum(
        "llm_near_context_limit_total",
        &[("model", "large"), ("scene", "search")],
    );
    assert!((near - 1.0).abs() < 1e-9, "{near}");

    let table = asked(&agent, &["cost", "--by", "model"]);
    println!("{table}");
    assert!(table.contains("small") && table.contains("5,030"), "{table}");
    let heaviest = answered(&agent, &["cost", "heaviest", "--limit", "2"]);
    let ids: Vec<_> = heaviest["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["input_tokens"])
        .collect();
    assert_eq!(ids, [5000, 890]);
    println!("{}", asked(&agent, &["cost", "heaviest"]));
    println!("{}", asked(&agent, &["cost", "growth"]));

    // What was used more than a second ago is in the store.
    std::thread::sleep(Duration::from_millis(1500));
    agent.kill();
    let (agent, engine) = watch(folder.path(), &server, &arguments);
    let after = rows(&answered(&agent, &["cost", "--by", "model"]));
    assert_eq!(after, before, "{}", agent.log_tail());
    truths.push(send("small", 30, 5));
    agent
        .wait_requests(1, Duration::from_secs(5), |record| record.engine == engine)
        .unwrap();
    for since in ["24h", "30d"] {
        let answer = answered(&agent, &["cost", "--by", "model", "--since", since]);
        let told: Vec<_> = rows(&answer)
            .into_iter()
            .map(|(name, n, input, output, _)| (name, n, input, output))
            .collect();
        assert_eq!(
            told,
            [expected("large", 0), expected("small", 1)],
            "{since}: {}",
            agent.log_tail()
        );
    }
    assert!(agent.stop(), "it ends by itself");
}
