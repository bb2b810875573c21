//! What requests cost, on real sockets: while they stream, when they are cut off, and when prices change.
//!
//! Owns: prices in a file, and sums of counters against the records. Refuses: the arithmetic (the core's own tests).

use super::*;

const PRICES: &str = r#"
[[price]]
model = "model-a"
currency = "USD"
input = 1000
output = 4000
"#;
/// Prompt and generated tokens, units each.
const INPUT: f64 = 0.001;
const OUTPUT: f64 = 0.004;
/// Prompt tokens that the scripted server reports.
const PROMPT: f64 = 7.0;

/// A server, and an agent that prices its model.
fn priced_bench() -> (Bench, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("infertap.toml");
    std::fs::write(&config, PRICES).unwrap();
    let server = server(folder.path(), &[]);
    let (agent, engine) = watch(folder.path(), &server, &["--config", config.to_str().unwrap()]);
    drop(server.address.connect().unwrap());
    let bench = Bench {
        server,
        agent: Arc::new(agent),
        engine,
        folder,
    };
    (bench, config)
}

fn charged(bench: &Bench, direction: &str) -> f64 {
    let labels = [
        ("model", "model-a"),
        ("currency", "USD"),
        ("basis", "tokens"),
        ("direction", direction),
    ];
    bench.agent.metrics().unwrap().sum("llm_cost_total", &labels)
}

fn assert_near(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() < 1e-9,
        "{what}: {found} instead of {expected}"
    );
}

fn total(record: &Record) -> f64 {
    let cost = record
        .cost
        .as_ref()
        .unwrap_or_else(|| panic!("no cost: {record:?}"));
    cost["total"].as_f64().unwrap()
}

#[test]
fn an_answer_costs_while_it_streams_and_as_its_tokens_at_the_end() {
    let (bench, _) = priced_bench();
    let mut connection = bench.connect();
    let plan = scripted(
        &json!({"chunks": 40, "gap_us": 50_000, "tokens_per_chunk": 2}),
        true,
    );
    let mut truth = connection.send(&plan);
    std::thread::sleep(Duration::from_secs(1));
    let so_far = charged(&bench, "output");
    assert!(
        so_far > 0.0 && so_far < 80.0 * OUTPUT,
        "{so_far} after half of it"
    );
    assert_near(charged(&bench, "input"), 0.0, "the prompt before the end");
    connection.receive(&plan, &mut truth);
    let pairs = bench.assert_agree(&[truth], "the answer");
    let record = &pairs[0].1;
    assert_eq!((record.input_tokens, record.output_tokens), (Some(7), Some(80)));
    assert_near(total(record), PROMPT * INPUT + 80.0 * OUTPUT, "the record");
    assert_near(charged(&bench, "input"), PROMPT * INPUT, "the prompt");
    assert_near(charged(&bench, "output"), 80.0 * OUTPUT, "the answer");
}

#[test]
fn a_cancelled_answer_is_paid_for() {
    let (bench, _) = priced_bench();
    let plan = Plan {
        cancel_after: Some(20),
        ..scripted(&json!({"chunks": 2000, "gap_us": 5_000}), true)
    };
    let truth = bench.connect().exchange(&plan);
    let pairs = bench.assert_agree(&[truth], "the cancelled answer");
    let record = &pairs[0].1;
    assert_eq!(record.status, "cancelled");
    let output = record.output_tokens.unwrap();
    assert!(output >= 20, "{record:?}");
    // Nobody told the prompt's tokens: they are estimated, or not known.
    let input = record.input_tokens.unwrap_or(0);
    let expected = input as f64 * INPUT + output as f64 * OUTPUT;
    assert_near(total(record), expected, "the record");
    assert_near(charged(&bench, "output"), output as f64 * OUTPUT, "the answer");
    assert_near(charged(&bench, "input"), input as f64 * INPUT, "the prompt");
}

#[test]
fn prices_are_read_again_and_a_mistake_leaves_those_before() {
    let (bench, config) = priced_bench();
    let reloads = |outcome: &str| {
        let metrics = bench.agent.metrics().unwrap();
        metrics.sum("infertap_config_reloads_total", &[("outcome", outcome)])
    };
    let wait = |outcome: &str| {
        let since = Instant::now();
        while reloads(outcome) < 1.0 {
            assert!(since.elapsed() < Duration::from_secs(15), "never {outcome}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let exchange = || {
        let truth = bench.connect().exchange(&scripted(&json!({"chunks": 10}), true));
        let id = truth.response_id.clone();
        let records = bench
            .agent
            .wait_requests(1, Duration::from_secs(5), |record| record.response_id == id)
            .unwrap();
        total(&records[0])
    };
    let (first, second) = (PROMPT * INPUT + 10.0 * OUTPUT, PROMPT * INPUT + 20.0 * OUTPUT);
    assert_near(exchange(), first, "the first book");
    std::fs::write(&config, PRICES.replace("output = 4000", "output = -1")).unwrap();
    wait("refused");
    assert_near(exchange(), first, "after a mistake");
    std::fs::write(&config, PRICES.replace("output = 4000", "output = 8000")).unwrap();
    wait("applied");
    // It is on its way to the thread that prices.
    let since = Instant::now();
    while (exchange() - second).abs() > 1e-9 {
        assert!(since.elapsed() < Duration::from_secs(5), "never the second book");
    }
    // Another model has no price, and says so.
    let plan = Plan::chat("unpriced", "model-b", "hello", &json!({"stream": false}));
    let truth = bench.connect().exchange(&plan);
    let records = bench
        .agent
        .wait_requests(1, Duration::from_secs(5), |record| {
            record.response_id == truth.response_id
        })
        .unwrap();
    assert_eq!(records[0].cost, None);
    let metrics = bench.agent.metrics().unwrap();
    let unpriced = metrics.sum("llm_unpriced_tokens_total", &[("model", "model-b")]);
    let tokens = records[0].input_tokens.unwrap_or(0) + records[0].output_tokens.unwrap_or(0);
    assert!(tokens > 0, "{records:?}");
    assert_near(unpriced, tokens as f64, "without a price");
}
