//! The reference of all metrics, `docs/metrics.md`, rendered from the catalog.
//!
//! Owns: the page; the test below compares it with the file and with what is registered. Refuses: facts that are not
//! in the catalog or in the defaults.

use super::{
    catalog::{CATALOG, Definition, unit},
    config::MetricsConfig,
    labels::UNKNOWN,
    values::{self, AgentLoss},
};
use crate::sampler::nvml::{Fault, Reason};
use infertap_abi::DropReason;
use infertap_core::{Anomaly, Cause, Status, observation::StepKind};
use std::fmt::Write;

const HEAD: &str = "# Metrics

Every metric that infertap exports on `/metrics`. The page is rendered from the metrics' definitions: after a change,
run the tests of the agent with `UPDATE_EXPECT=1`.

- `model` is the served name that requests ask for; `scene` the business purpose of a request (`default` unless rules say
  otherwise); `engine` a short id of a serving instance, as in `vllm-8000`. Everything else about an engine is on
  `llm_engine_info`; join on `engine`.
- What is not known is absent, never zero. Requests touched by loss have status `incomplete`: they are counted, their
  tokens too, but their durations and sizes are in no histogram.
- Cancelled and failed requests are in the histograms, with the times that they reached.
- Labels come from traffic, so each has a hard cap on its values; see [Label caps](#label-caps). Users, request ids and
  prompts are never labels.
- In OpenMetrics (`Accept: application/openmetrics-text`) buckets and `llm_requests_total` carry the trace id of their
  latest request as an exemplar: where records are kept, of the latest whose record was, so that `infertap show` finds it.
  Prometheus stores them with `--enable-feature=exemplar-storage`.
- Percentiles: `histogram_quantile(0.95, sum by (le, model) (rate(llm_ttft_seconds_bucket[5m])))`. Mean:
  `rate(…_sum[5m]) / rate(…_count[5m])`.
";

/// The page.
pub fn reference() -> String {
    let mut out = String::from(HEAD);
    // Writing to a String can't fail.
    let _ = render(&mut out);
    out
}

/// Title of each section, and the beginning of its metrics' names.
const SECTIONS: [(&str, &str); 4] = [
    ("Requests and engines", "llm_"),
    ("GPUs", "gpu_"),
    ("CUDA calls", "cuda_"),
    ("The agent itself", "infertap_"),
];

fn render(out: &mut String) -> std::fmt::Result {
    for (title, prefix) in SECTIONS {
        writeln!(
            out,
            "\n## {title}\n\n| metric | type | labels | unit |\n|---|---|---|---|"
        )?;
        let section = || {
            CATALOG
                .iter()
                .filter(|definition| definition.name.starts_with(prefix))
        };
        for definition in section() {
            let name = definition.name;
            writeln!(
                out,
                "| [`{name}`](#{name}) | {} | {} | {} |",
                definition.kind.as_str(),
                labels(definition),
                unit_of(definition).unwrap_or("–"),
            )?;
        }
        for definition in section() {
            writeln!(
                out,
                "\n### {}\n\n{}\n\n- Type: {}{}\n- Labels: {}\n- Source: {}\n- Absent: {}",
                definition.name,
                definition.help,
                definition.kind.as_str(),
                unit_of(definition)
                    .map(|unit| format!(", in {unit}"))
                    .unwrap_or_default(),
                labels(definition),
                definition.source,
                definition.absent,
            )?;
        }
    }
    let config = MetricsConfig::default();
    let (model, scene, engine) = (config.max_models, config.max_scenes, config.max_engines);
    values(out)?;
    writeln!(
        out,
        "
## Label caps

| label | values kept by default | key |
|---|---|---|
| `model` | {model} | `metrics.max_models` |
| `scene` | {scene} | `metrics.max_scenes` |
| `engine` | {engine} at one time | `metrics.max_engines` |
| `xid` | 64 a GPU | none |

The first values up to the cap keep their names, served models of discovered engines as soon as the engine is found.
Later ones, and any longer than 256 bytes, become `other`; an empty one is `unknown`. Each request and engine so renamed
is counted by `infertap_label_overflow_total`. An engine's place is free again when it is gone. So a family of model and
scene never has more than (models + 2) × (scenes + 2) combinations, whatever clients send.

## Buckets

Upper bounds by default; `+Inf` is added to each.

| key | upper bounds |
|---|---|"
    )?;
    for (key, bounds) in config.buckets() {
        let bounds: Vec<String> = bounds.iter().map(ToString::to_string).collect();
        writeln!(out, "| `metrics.{key}` | {} |", bounds.join(" "))?;
    }
    Ok(())
}

/// Value and meaning.
type Rows<'a> = &'a [(&'a str, &'a str)];

/// The tables of the labels whose values are few and fixed.
fn values(out: &mut String) -> std::fmt::Result {
    let statuses = Status::ALL.map(|status| (status.as_str(), values::status(status)));
    let causes = Cause::ALL.map(|cause| (cause.as_str(), values::cause(cause)));
    let sources = values::SOURCES.map(|source| (source.as_str(), values::source(source)));
    let kernel = DropReason::ALL.map(|reason| (reason.label(), values::kernel_drop(reason)));
    let agent = AgentLoss::ALL.map(|loss| (loss.as_str(), values::agent_loss(loss)));
    let anomalies = Anomaly::ALL.map(|kind| (kind.as_str(), values::anomaly(kind)));
    let steps = StepKind::ALL.map(|kind| (kind.as_str(), values::step_kind(kind)));
    let unknown = [(UNKNOWN, values::UNKNOWN_STEP)];
    let reasons = Reason::ALL.map(|reason| (reason.as_str(), reason.meaning()));
    let faults = Fault::ALL.map(|fault| (fault.as_str(), fault.meaning()));
    let tables: [(&str, &[Rows<'_>]); 10] = [
        ("`status` of `llm_requests_total`", &[&statuses]),
        ("`cause` of `llm_bottleneck_total`", &[&causes]),
        (
            "`source` of `llm_token_source_total` and `llm_phase_source_total`",
            &[&sources],
        ),
        (
            "`kind` of `llm_engine_step_seconds` and `llm_batch_size`",
            &[&steps, &unknown],
        ),
        ("`reason` of `infertap_events_dropped_total`", &[&kernel, &agent]),
        (
            "`outcome` of `infertap_tokenizer_calls_total`",
            &[&values::TOKENIZER_CALLS],
        ),
        (
            "`outcome` of `infertap_token_counts_total`",
            &[&values::TOKEN_COUNTS],
        ),
        ("`kind` of `infertap_anomalies_total`", &[&anomalies]),
        ("`reason` of `gpu_throttle_seconds_total`", &[&reasons]),
        ("`error` of `infertap_gpu_errors_total`", &[&faults]),
    ];
    writeln!(out, "\n## Label values")?;
    for (title, rows) in tables {
        writeln!(out, "\n### {title}\n\n| value | meaning |\n|---|---|")?;
        for (value, meaning) in rows.iter().copied().flatten() {
            writeln!(out, "| `{value}` | {meaning} |")?;
        }
    }
    Ok(())
}

fn labels(definition: &Definition) -> String {
    let labels: Vec<String> = definition
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    if labels.is_empty() {
        "none".to_owned()
    } else {
        labels.join(", ")
    }
}

fn unit_of(definition: &Definition) -> Option<&'static str> {
    unit(definition.name.strip_suffix("_total").unwrap_or(definition.name))
}
