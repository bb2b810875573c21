//! Observations as text, for snapshots.

use super::*;

/// One line an observation.
pub fn render(out: &[Observation]) -> String {
    let mut s = String::new();
    for observation in out {
        match observation {
            Observation::Started(labels) => writeln!(s, "started {} {}", labels.engine, labels.model),
            Observation::Tokens { direction, count, .. } => {
                writeln!(s, "tokens {} +{count}", direction.as_str())
            }
            Observation::Anomaly { kind, count } => writeln!(s, "anomaly {} {count}", kind.as_str()),
            Observation::Ignore(conn) => writeln!(s, "ignore {}", conn.0),
            Observation::Gateway(exchange) => writeln!(
                s,
                "gateway {} {} http={:?} id={:?} engine={}",
                exchange.gateway,
                exchange.status.as_str(),
                exchange.http_status,
                exchange.response_id,
                exchange.outcome.as_str()
            ),
            Observation::Joined(joined) => writeln!(
                s,
                "joined by {} before={:?} after={:?} trace={:?}",
                joined.part.joined_by.as_str(),
                joined.part.before_s,
                joined.part.after_s,
                joined.trace
            ),
            Observation::Finished(finished) => writeln!(s, "{}", render_record(finished)),
            Observation::EngineMessages { engine, understood } => {
                writeln!(s, "engine messages of {engine}: {understood}")
            }
            // Told by the clock, not by the conversation.
            Observation::Capacity(_)
            | Observation::Pressure(_)
            | Observation::Prefix(_)
            | Observation::Gpu(_) => Ok(()),
            Observation::Charge(charge) => writeln!(
                s,
                "charge {} {} {} for {} tokens",
                charge.kind.as_str(),
                charge.amount,
                charge.currency,
                charge.tokens
            ),
            Observation::Unpriced { direction, count, .. } => {
                writeln!(s, "unpriced {} +{count}", direction.as_str())
            }
            Observation::Count(job) => writeln!(
                s,
                "count input {} output {} of {} bytes and {:?}",
                job.input,
                job.output,
                job.content.request().len(),
                job.content.texts().collect::<Vec<_>>()
            ),
            Observation::TokenCount(outcome) => writeln!(s, "token count: {}", outcome.as_str()),
            Observation::TokenizerCalls { tied, unassigned } => {
                writeln!(s, "tokenizer calls: {tied} tied, {unassigned} unassigned")
            }
            Observation::Engine(report) => writeln!(
                s,
                "engine {} {:?} prefix {}/{} preempted {}",
                report.engine,
                report.load,
                report.prefix_hit_tokens,
                report.prefix_queried_tokens,
                report.preemptions
            ),
            Observation::Step(step) => writeln!(
                s,
                "step of {} {:?} to {} with {:?} requests, {:?} + {:?} tokens, {:?} s",
                step.engine,
                step.kind,
                step.end,
                step.requests,
                step.prefill_tokens,
                step.decode_tokens,
                step.seconds()
            ),
        }
        .expect("a string");
    }
    s
}

fn render_record(finished: &infertap_core::observation::Finished) -> String {
    let r = &finished.record;
    let mut s = format!("finished {} {} {}", r.status.as_str(), r.protocol, r.model);
    let mut field = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(s, " {name}={value}").expect("a string");
        }
    };
    let sourced = |n: Option<u64>, source: Option<infertap_core::Source>| {
        n.map(|n| format!("{n}({})", source.map_or("?", infertap_core::Source::as_str)))
    };
    let seconds = |s: Option<f64>| s.map(|s| format!("{s:.3}"));
    field("http", r.http_status.map(|n| n.to_string()));
    field("streamed", r.streamed.then(|| "yes".into()));
    field("id", r.response_id.clone());
    field("finish", r.finish_reason.clone());
    field("ttft", seconds(r.ttft_s));
    field("decode", seconds(r.decode_s));
    field("tpot", seconds(r.tpot_s));
    field("e2e", seconds(r.e2e_s));
    field("in", sourced(r.input_tokens, r.sources.input_tokens));
    field("out", sourced(r.output_tokens, r.sources.output_tokens));
    field("cached", r.cached_input_tokens.map(|n| n.to_string()));
    field("reasoning", r.reasoning_tokens.map(|n| n.to_string()));
    field("chunks", Some(r.chunks.to_string()));
    let gaps: Vec<String> = finished
        .gaps
        .iter()
        .map(|(gap, n)| format!("{gap:.3}/{n}"))
        .collect();
    field("gaps", (!gaps.is_empty()).then(|| gaps.join(",")));
    field(
        "incomplete",
        (!r.incomplete.is_empty()).then(|| r.incomplete.join(",")),
    );
    s
}
