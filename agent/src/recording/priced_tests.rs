//! Replays with prices: lines, JSON, metrics and sums tell the same cost.

use super::{ReplayCommand, ReplayOutput, replay_command};
use crate::config::Config;
use infertap_core::ledger::{By, Report};
use infertap_core::money::{Amount, Basis};
use infertap_core::{RequestRecord, Status};
use std::path::PathBuf;

/// Of vLLM, whose prompts come from its cache in part. It holds no readings of GPUs.
fn recording() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/traces/vllm-0.32.infertap"
    ))
}

/// Of a model that it has, and of GPUs; what is of a client of its own is a scene.
const CONFIG: &str = r#"
[[price]]
model = "smol*"
currency = "USD"
input = 1
cached_input = 0.1
output = 4

[[price]]
model = "smol*"
currency = "EUR"
input = 1000
output = 1000
valid_from = "2999-01-01"

[gpu_price]
per_hour = 2.5

[[scene]]
name = "all-of-it"
model = ["smol*"]
"#;

/// What is printed, and the notes.
fn printed(output: ReplayOutput, config: Option<&str>) -> (String, String) {
    let mut command = ReplayCommand {
        file: recording(),
        output,
        ..ReplayCommand::default()
    };
    if let Some(text) = config {
        let config: Config = toml::from_str(text).expect("a configuration");
        command.pricing = config.replay_pricing();
        command.pipeline = config.pipeline();
    }
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    replay_command(&command, &mut out, &mut notes).expect("replays");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(out), text(notes))
}

fn records(config: Option<&str>) -> Vec<RequestRecord> {
    let (lines, _) = printed(ReplayOutput::Json, config);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect()
}

#[test]
fn every_form_tells_the_same_cost() {
    let records = records(Some(CONFIG));
    let cost: Amount = records
        .iter()
        .filter_map(|record| record.cost.as_ref())
        .map(|cost| cost.total)
        .sum();
    let (mut input, mut cached, mut output) = (0, 0, 0);
    for record in &records {
        input += record.input_tokens.unwrap_or(0);
        cached += record.cached_input_tokens.unwrap_or(0);
        output += record.output_tokens.unwrap_or(0);
    }
    assert!(cached > 0 && records.iter().any(|record| record.status == Status::Cancelled));
    // Prices are of a million, so units of 10⁻⁶; the cached ones at a tenth.
    let expected = u128::from((input - cached) * 10 + cached + output * 40) * 100_000;
    assert_eq!(cost, Amount::from_pico(expected));

    let sums = |by, json| printed(ReplayOutput::Sums { by, json }, Some(CONFIG)).0;
    let report: Report = serde_json::from_str(&sums(By::Scene, true)).expect("a report");
    let [ref scene, ref rest] = report.rows[..] else {
        panic!("{:?}", report.rows)
    };
    assert_eq!((&*scene.name, &*rest.name), ("all-of-it", "default"));
    let usd = "USD".parse().expect("a currency");
    let spent = scene.usage.spent(usd, Basis::Tokens).expect("a cost");
    assert_eq!(spent.amount, cost);
    assert_eq!(
        spent.saved,
        Amount::from_pico(u128::from(cached) * 900_000),
        "nine tenths of their price"
    );
    assert_eq!(report.total.usage.requests, records.len() as u64);
    assert!(report.total.usage.spent(usd, Basis::Gpu).is_none());
    let table = sums(By::Model, false);
    assert!(
        table.contains("USD (tokens)") && table.contains("smollm2"),
        "{table}"
    );

    let (metrics, _) = printed(ReplayOutput::Metrics, Some(CONFIG));
    let told: f64 = metrics
        .lines()
        .filter(|line| line.starts_with("llm_cost_total{basis=\"tokens\""))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!((told - cost.units()).abs() < 1e-9, "{told} is not {cost}");
    assert!(!metrics.contains("basis=\"gpu\""), "no GPU was read");

    let (table, notes) = printed(ReplayOutput::Table, Some(CONFIG));
    let line = format!("cost of tokens: {:.6} USD", cost.units());
    assert!(table.contains(&line) && table.contains("COST"), "{line}: {table}");
    assert!(!table.contains("GPU time"), "{table}");
    assert!(notes.contains("what GPUs cost is not known"), "{notes}");
}

#[test]
fn nothing_costs_anything_without_prices() {
    assert!(records(None).iter().all(|record| record.cost.is_none()));
    let (table, notes) = printed(ReplayOutput::Table, None);
    assert!(!table.contains("COST") && !table.contains("cost"), "{table}");
    assert!(!notes.contains("GPU"), "{notes}");
}
