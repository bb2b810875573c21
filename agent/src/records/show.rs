//! `infertap show`: one request, its timeline drawn in the terminal.
//!
//! Owns: the drawing. Refuses: phases that are not known: they have no bar.

use super::GpuDuring;
use super::command::{duration, optional, reader, utc, warn};
use crate::cli::ShowArgs;
use crate::config::Config;
use crate::print::{self, name};
use crate::store::tables::record::{self, KeptRecord};
use anyhow::bail;
use infertap_core::content::{PartKind, Transcript};
use infertap_core::gateway::GatewayPart;
use infertap_core::{Nanos, RequestRecord, Source};
use std::io::Write;

/// Cells of the bars.
const WIDTH: usize = 64;
/// How many tokens a cell has, from none to most.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Prints the request that a name stands for: an id or its first digits, a trace id, a response's id.
///
/// # Errors
/// It stands for none or several; the store can't be read, or the output not be written.
pub fn show_command(config: &Config, args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut found = reader(config)?.read(|db| record::named(db, &args.id))?;
    warn(&found);
    let Some(kept) = found.records.pop() else {
        bail!(
            "no record of {} was kept: `infertap requests` tells which are there, and [records] in the configuration decides",
            name(&args.id)
        );
    };
    if !found.records.is_empty() {
        found.records.push(kept);
        let ids: Vec<&str> = found.records.iter().map(|kept| &*kept.record.id).collect();
        bail!(
            "{} stands for several requests: {}",
            name(&args.id),
            name_list(&ids)
        );
    }
    if args.json {
        print::json(&kept, out)?;
        return Ok(());
    }
    out.write_all(page(&kept).as_bytes())?;
    Ok(())
}

fn name_list(ids: &[&str]) -> String {
    ids.iter().map(|id| name(id)).collect::<Vec<_>>().join(", ")
}

/// All that is told of a request.
fn page(kept: &KeptRecord) -> String {
    let record = &kept.record;
    let optional_text = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), name);
    let http = record
        .http_status
        .map_or_else(|| "no status".to_owned(), |code| code.to_string());
    let mut lines = vec![
        format!(
            "{}  {}  HTTP {http}, {}, finished by {}",
            name(&record.id),
            record.status.as_str(),
            name(&record.protocol),
            optional_text(&record.finish_reason),
        ),
        format!("ended     {} UTC", utc(kept.ended_unix_ms)),
        format!("model     {}", name(&record.model)),
        format!("scene     {}", name(&record.scene)),
        format!("engine    {}", name(&record.engine)),
        format!("trace     {}", name(&record.trace_id)),
        format!("response  {}", optional_text(&record.response_id)),
    ];
    lines.extend(kept.gateway.as_ref().map(gateway));
    lines.extend(client(record));
    lines.push(format!("kept as   {}", name(&kept.rules.join(", "))));
    if !record.incomplete.is_empty() {
        lines.push(format!("incomplete: {}", name(&record.incomplete.join(", "))));
    }
    lines.push(String::new());
    lines.extend(timeline(kept));
    lines.push(String::new());
    let mut told = vec![
        format!("TTFT {}", optional(record.ttft_s)),
        format!("TPOT {}", optional(record.tpot_s)),
        format!("end to end {}", optional(record.e2e_s)),
    ];
    let longest = kept
        .token_gaps
        .iter()
        .filter(|(_, tokens)| *tokens > 0)
        .map(|(seconds, tokens)| seconds / f64::from(*tokens))
        .max_by(f64::total_cmp);
    told.extend(longest.map(|longest| format!("longest gap between tokens {}", duration(longest))));
    lines.push(told.join("   "));
    lines.push(format!(
        "tokens: {}, {}",
        counted(record.input_tokens, "in", record.sources.input_tokens),
        counted(record.output_tokens, "out", record.sources.output_tokens),
    ));
    lines.extend(costs(record));
    lines.extend(diagnosis(kept));
    lines.extend(record.energy_j.map(|joules| format!("energy: {joules:.1} J")));
    lines.extend(kept.gpu.iter().map(gpu));
    lines.extend(kept.content.iter().flat_map(|content| said(content.get())));
    lines.join("\n") + "\n"
}

/// What it and its answer said.
fn said(made: &Transcript) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, side) in [("prompt", &made.input), ("answer", &made.output)] {
        let bytes = side
            .bytes
            .map_or_else(String::new, |bytes| format!(", {bytes} B"));
        let cut = if side.truncated { ", cut" } else { "" };
        lines.push(String::new());
        lines.push(match (side.absent, &side.hash) {
            (Some(why), _) => format!("{name} ({}): not kept, {}", made.mode.as_str(), why.as_str()),
            (None, Some(hash)) => format!("{name} ({}{bytes}): {hash}", made.mode.as_str()),
            (None, None) => format!("{name} ({}{bytes}{cut})", made.mode.as_str()),
        });
        for message in &side.messages {
            lines.push(format!("  {}:", harmless(&message.role)));
            for part in &message.parts {
                let label = match (part.kind, &part.name) {
                    (PartKind::Text, None) => String::new(),
                    (kind, None) => format!("[{}] ", kind.as_str()),
                    (kind, Some(name)) => format!("[{} {}] ", kind.as_str(), harmless(name)),
                };
                let text = label + &part.content;
                lines.extend(
                    text.split('\n')
                        .map(|line| format!("    {}", harmless(line)).trim_end().to_owned()),
                );
            }
        }
    }
    if !made.redactions.is_empty() {
        let counts = made
            .redactions
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"));
        lines.push(String::new());
        lines.push(format!("redacted: {}", counts.collect::<Vec<_>>().join(", ")));
    }
    lines
}

/// A text that can't drive the terminal: what is no character to be seen, and what turns the direction of writing, is spelled
/// out.
fn harmless(text: &str) -> String {
    let turns = |char: char| matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\t' => out.push_str("    "),
            char if char.is_control() || turns(char) => out.extend(char.escape_unicode()),
            char => out.push(char),
        }
    }
    out
}

fn counted(count: Option<u64>, way: &str, source: Option<Source>) -> String {
    match (count, source) {
        (Some(count), Some(source)) => format!("{count} {way} ({})", source.as_str()),
        (Some(count), None) => format!("{count} {way}"),
        _ => format!("unknown {way}"),
    }
}

/// What its tokens cost, by part.
fn costs(record: &RequestRecord) -> Option<String> {
    let cost = record.cost.as_ref()?;
    let parts = [
        ("input", cost.input),
        ("cached input", cost.cached_input),
        ("output", cost.output),
        ("reasoning", cost.reasoning),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter_map(|(part, amount)| Some(format!("{part} {}", amount?)))
        .collect();
    let saved = cost
        .saved
        .filter(|saved| !saved.is_zero())
        .map(|saved| format!(", saved by cached tokens {saved}"));
    let currency = cost.currency.as_str();
    Some(format!(
        "cost: {} {currency} ({}){}",
        cost.total,
        parts.join(", "),
        saved.unwrap_or_default()
    ))
}

/// What a GPU was like.
fn gpu(during: &GpuDuring) -> String {
    let whole = |value: Option<f64>, unit: &str| value.map(|value| format!("{value:.0} {unit}"));
    let known = [
        during
            .utilization_ratio
            .map(|ratio| format!("busy {:.0} %", ratio * 100.0)),
        whole(during.power_watts, "W"),
        during
            .memory_used_max_bytes
            .map(|bytes| format!("memory up to {:.1} GiB", bytes as f64 / f64::from(1 << 30))),
        whole(during.sm_clock_min_hertz.map(|hertz| hertz / 1e6), "MHz at least"),
        whole(during.temperature_max_celsius, "°C at most"),
        (!during.throttle_reasons.is_empty())
            .then(|| format!("clocks lowered by {}", name(&during.throttle_reasons.join(", ")))),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    format!("GPU {}: {}", name(&during.gpu), known.join(", "))
}

fn diagnosis(kept: &KeptRecord) -> Option<String> {
    let diagnosis = kept.record.diagnosis.as_ref()?;
    let shares = [
        ("queue", diagnosis.queue),
        ("prefill", diagnosis.prefill),
        ("decode", diagnosis.decode),
        ("interference", diagnosis.interference),
        ("client", diagnosis.client),
    ];
    let shares: Vec<String> = shares
        .into_iter()
        .filter_map(|(name, share)| Some(format!("{name} {:.0} %", share? * 100.0)))
        .collect();
    let cause = diagnosis
        .cause
        .map_or("nothing stands out", |cause| cause.as_str());
    let mut line = format!("diagnosis: {cause} ({})", shares.join(", "));
    let by: Vec<String> = diagnosis
        .interference_by
        .iter()
        .map(|blamed| {
            let id = blamed.id.as_deref().or(blamed.response_id.as_deref());
            format!(
                "{} {}",
                id.map_or_else(|| "one not known".to_owned(), name),
                duration(blamed.seconds)
            )
        })
        .collect();
    if !by.is_empty() {
        line.push_str("\nstood still for: ");
        line.push_str(&by.join(", "));
    }
    Some(line)
}

fn client(record: &RequestRecord) -> Option<String> {
    let mut line = format!("client    {}", record.client?);
    if let (Some(namespace), Some(pod)) = (&record.client_namespace, &record.client_pod) {
        line += &format!("  pod {}/{}", name(namespace), name(pod));
    }
    if let (Some(kind), Some(workload)) = (&record.client_workload_kind, &record.client_workload) {
        line += &format!(" of {} {}", name(kind), name(workload));
    }
    Some(line)
}

fn gateway(part: &GatewayPart) -> String {
    let http = part
        .http_status
        .map_or_else(|| "no status".to_owned(), |code| code.to_string());
    format!(
        "gateway   {}  {}  HTTP {http}, {} before the engine, {} after it, joined by {}",
        name(&part.name),
        part.status.as_str(),
        optional(part.before_s),
        optional(part.after_s),
        part.joined_by.as_str()
    )
}

/// The phases, each at its place, and the tokens as they came.
fn timeline(kept: &KeptRecord) -> Vec<String> {
    let record = &kept.record;
    let Some((t0, t4)) = record.t0_ns.zip(record.t4_ns).filter(|(begin, end)| begin < end) else {
        return vec!["Its beginning or its end is not known: there is no timeline to draw.".to_owned()];
    };
    // With a gateway, all of its part.
    let (came, went) = match &kept.gateway {
        Some(part) => (part.t0_ns, part.t4_ns),
        None => (None, None),
    };
    let begin = came.map_or(t0, |came| came.min(t0));
    let end = went.map_or(t4, |went| went.max(t4));
    let (t1, t2, t3) = (record.t1_ns, record.t2_ns, record.t3_ns);
    let before_first = if t1.is_some() { t1 } else { Some(t0) };
    let first = if t1.is_some() { "prefill" } else { "to first token" };
    let phases = [
        ("to the engine", came, Some(t0), None),
        ("queue", t1.and(Some(t0)), t1, record.sources.t1),
        (first, before_first, t2, record.sources.t2),
        ("decode", t2, t3, record.sources.t3),
        ("response", t3.or(Some(t0)), Some(t4), None),
        ("to the client", Some(t4), went, None),
    ];
    let mut lines = Vec::new();
    for (name, from, to, source) in phases {
        let Some((from, to)) = from.zip(to).filter(|(from, to)| from <= to) else {
            continue;
        };
        let estimated = if source == Some(Source::Estimate) {
            "  estimated"
        } else {
            ""
        };
        let line = format!(
            "{name:<14} {:>8}  {}{estimated}",
            duration((to - from) as f64 / 1e9),
            bar(begin, end, from, to),
        );
        lines.push(line.trim_end().to_owned());
    }
    if let Some(tokens) = tokens(kept, begin, end) {
        lines.push(format!("{:<14} {:>8}  {tokens}", "tokens", ""));
    }
    let all = duration((end - begin) as f64 / 1e9);
    lines.push(format!("{:25}0{all:>width$}", "", width = WIDTH - 1));
    lines
}

/// The cell in which a time is.
fn cell(begin: Nanos, end: Nanos, at: Nanos) -> usize {
    let part = at.saturating_sub(begin) as f64 / (end - begin) as f64;
    (part * WIDTH as f64) as usize
}

/// A bar from one time to another; of something that is shorter than a cell, a thin one.
fn bar(begin: Nanos, end: Nanos, from: Nanos, to: Nanos) -> String {
    let (from, to) = (cell(begin, end, from), cell(begin, end, to));
    let at = from.min(WIDTH - 1);
    let mut line = " ".repeat(at);
    if to <= from {
        line.push('▏');
    } else {
        line += &"█".repeat(to.min(WIDTH) - at);
    }
    line + &" ".repeat(WIDTH.saturating_sub(to.max(at + 1)))
}

/// How many tokens came when; `None` where that is not known.
fn tokens(kept: &KeptRecord, begin: Nanos, end: Nanos) -> Option<String> {
    let first = kept.token_gaps_from_ns?;
    let mut cells = [0_u64; WIDTH];
    let mut add = |at: Nanos, tokens: u32| {
        if let Some(cell) = cells.get_mut(cell(begin, end, at).min(WIDTH - 1)) {
            *cell += u64::from(tokens);
        }
    };
    add(first, 1);
    let mut at = first;
    for &(seconds, tokens) in &kept.token_gaps {
        at = at.saturating_add((seconds.max(0.0) * 1e9) as Nanos);
        add(at, tokens);
    }
    let most = cells.iter().max().copied().filter(|most| *most > 0)?;
    let height = |tokens: &u64| HEIGHTS[(tokens * 8).div_ceil(most).min(8) as usize];
    Some(cells.iter().map(height).collect::<String>().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use infertap_core::content::{Absent, Message, Mode, Part, Side};

    #[test]
    fn content_is_printed_and_does_not_drive_the_terminal() {
        let part = |kind, name: Option<&str>, content: &str| Part {
            kind,
            name: name.map(str::to_owned),
            content: content.to_owned(),
        };
        let made = Transcript {
            mode: Mode::Redacted,
            input: Side {
                messages: vec![Message {
                    role: "user\u{1b}[2J".to_owned(),
                    parts: vec![
                        part(
                            PartKind::Text,
                            None,
                            "mail [EMAIL]\n\u{1b}]0;title\u{7}\u{202e}x\r",
                        ),
                        part(PartKind::ToolCall, Some("f"), "{}"),
                    ],
                }],
                bytes: Some(40),
                truncated: true,
                ..Side::default()
            },
            output: Side::absent(Absent::TooLarge),
            redactions: [("EMAIL".to_owned(), 1)].into(),
        };
        let expected = r"
prompt (redacted, 40 B, cut)
  user\u{1b}[2J:
    mail [EMAIL]
    \u{1b}]0;title\u{7}\u{202e}x\u{d}
    [tool_call f] {}

answer (redacted): not kept, too_large

redacted: EMAIL 1";
        assert_eq!(said(&made).join("\n"), expected);
    }
}
