//! Requests: a slice each, their phases within, and arrows to whom they kept waiting.
//!
//! Owns: their lanes and arguments. Refuses: a phase whose ends are not both known or not in order.

use super::event::{Event, Out, micros};
use super::lanes::Lanes;
use super::{History, TooLarge, tracks};
use crate::{Nanos, RequestRecord, Source, Status, diagnose::Cause};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Process and lane of each request that is drawn, by its id.
pub(super) type Places<'a> = HashMap<&'a str, (u32, u32)>;

/// A request that has a place.
struct Placed<'a> {
    record: &'a RequestRecord,
    from: Nanos,
    to: Nanos,
    tid: u32,
}

/// Draws an engine's requests on lanes from `lanes` on, and notes their places: those of all that had times to draw.
pub(super) fn of_engine<'a>(
    history: &History<'a>,
    out: &mut Out,
    pid: u32,
    engine: &Arc<str>,
    lanes: u32,
    places: &mut Places<'a>,
) -> Result<usize, TooLarge> {
    let of_engine = history.requests.iter().filter(|record| record.engine == *engine);
    let mut spans: Vec<(Nanos, Nanos, &'a RequestRecord)> = of_engine
        .filter_map(|record| {
            let (from, to) = span(record)?;
            Some((from, to, *record))
        })
        .collect();
    // By id where they begin together, so that the same requests make the same file.
    spans.sort_by(|(a, _, one), (b, _, other)| (a, &one.id).cmp(&(b, &other.id)));
    let mut taken = Lanes::default();
    let placed: Vec<Placed<'a>> = spans
        .into_iter()
        .map(|(from, to, record)| Placed {
            record,
            from,
            to,
            tid: lanes + taken.take(micros(from), micros(to)),
        })
        .collect();
    for lane in 0..taken.count() {
        // Viewers tell the lane's number too.
        tracks::lane(out, pid, lanes + lane, "requests")?;
    }
    for request in &placed {
        slices(request, out, pid)?;
        places.insert(&request.record.id, (pid, request.tid));
    }
    arrows(&placed, out, pid)?;
    Ok(placed.len())
}

/// From its first byte to the last thing known of it.
fn span(record: &RequestRecord) -> Option<(Nanos, Nanos)> {
    let from = record.t0_ns?;
    let points = [record.t1_ns, record.t2_ns, record.t3_ns, record.t4_ns];
    let to = points.into_iter().flatten().max()?;
    (from <= to).then_some((from, to))
}

fn slices(request: &Placed<'_>, out: &mut Out, pid: u32) -> Result<(), TooLarge> {
    let record = request.record;
    let mut slice = Event::slice(&record.model, (request.from, request.to), pid, request.tid);
    slice.cat = Some("request");
    slice.cname = colour(record.status);
    arguments(&mut slice, record);
    out.event(&slice)?;
    let mut reached = request.from;
    for (name, from, to, source) in phases(record) {
        if let Some((from, to)) = from.zip(to).filter(|(from, to)| from <= to && reached <= *from) {
            reached = to;
            let mut phase = Event::slice(name, (from, to), pid, request.tid);
            phase.cat = Some("phase");
            phase.arg("source", source.map(Source::as_str));
            if name == "queue" {
                phase.arg("may_be_off_s", record.t1_error_s);
            }
            out.event(&phase)?;
        }
    }
    // In a response that is not streamed no token goes out alone.
    if let Some(ttft) = record.ttft_s.filter(|_| record.streamed) {
        let at = request
            .from
            .saturating_add((ttft * 1e9).round().max(0.0) as Nanos);
        if at <= request.to {
            let mut first = Event::new("i", "first token sent", at, pid);
            (first.cat, first.s, first.tid) = (Some("request"), Some("t"), Some(request.tid));
            out.event(&first)?;
        }
    }
    Ok(())
}

/// The colour of what ended so.
pub(super) fn colour(status: Status) -> Option<&'static str> {
    match status {
        Status::Ok => None,
        Status::ClientError | Status::Cancelled => Some("bad"),
        Status::ServerError | Status::Timeout => Some("terrible"),
        Status::Incomplete => Some("grey"),
    }
}

type Phase = (&'static str, Option<Nanos>, Option<Nanos>, Option<Source>);

/// As `infertap show` draws them.
fn phases(record: &RequestRecord) -> [Phase; 4] {
    let (t0, t1, t2, t3) = (record.t0_ns, record.t1_ns, record.t2_ns, record.t3_ns);
    let (first, before_first) = match t1 {
        Some(_) => ("prefill", t1),
        None => ("to first token", t0),
    };
    let sources = &record.sources;
    [
        ("queue", t1.and(t0), t1, sources.t1),
        (first, before_first, t2, sources.t2),
        ("decode", t2, t3, sources.t3),
        ("response", t3, record.t4_ns, None),
    ]
}

fn arguments(slice: &mut Event<'_>, record: &RequestRecord) {
    slice.arg("id", Some(record.id.as_str()));
    slice.arg("trace_id", Some(record.trace_id.as_str()));
    slice.arg("response_id", record.response_id.as_deref());
    slice.arg("scene", Some(&*record.scene));
    slice.arg("protocol", Some(record.protocol.as_str()));
    slice.arg("streamed", Some(record.streamed));
    slice.arg("status", Some(record.status.as_str()));
    slice.arg("http_status", record.http_status);
    slice.arg("finish_reason", record.finish_reason.as_deref());
    slice.arg("input_tokens", record.input_tokens);
    slice.arg("cached_input_tokens", record.cached_input_tokens);
    slice.arg("output_tokens", record.output_tokens);
    slice.arg("reasoning_tokens", record.reasoning_tokens);
    slice.arg("ttft_s", record.ttft_s);
    slice.arg("tpot_s", record.tpot_s);
    slice.arg("e2e_s", record.e2e_s);
    slice.arg("tokenize_s", record.tokenize_s);
    slice.arg("energy_j", record.energy_j);
    if let Some(diagnosis) = &record.diagnosis {
        slice.arg("cause", diagnosis.cause.map(Cause::as_str));
        slice.arg(
            "interference_s",
            diagnosis.interference_s.filter(|seconds| *seconds > 0.0),
        );
    }
    if !record.incomplete.is_empty() {
        slice.arg("incomplete", Some(record.incomplete.join(", ")));
    }
}

/// From the prefill of a request into the decode of the one that stood still for it.
fn arrows(placed: &[Placed<'_>], out: &mut Out, pid: u32) -> Result<(), TooLarge> {
    let by_id: HashMap<&str, &Placed<'_>> = placed
        .iter()
        .map(|request| (request.record.id.as_str(), request))
        .collect();
    let mut id = 0;
    for victim in placed {
        let blamed = victim.record.diagnosis.iter().flat_map(|d| &d.interference_by);
        for blamed in blamed {
            let Some(other) = blamed.id.as_deref().and_then(|id| by_id.get(id)) else {
                continue;
            };
            let prefill = other.record.t1_ns.zip(other.record.t2_ns);
            let decode = victim.record.t2_ns.zip(victim.record.t3_ns);
            let Some(((t1, t2), (begin, end))) = prefill.zip(decode) else {
                continue;
            };
            let (from, to) = (t1.max(begin), t2.min(end));
            if from > to {
                continue;
            }
            id += 1;
            let args: [(&str, Value); 1] = [("seconds", json!(blamed.seconds))];
            for (ph, at, tid, bp) in [("s", from, other.tid, None), ("f", to, victim.tid, Some("e"))] {
                let mut end = Event::new(ph, "stood still for", at, pid);
                (end.cat, end.tid, end.bp) = (Some("interference"), Some(tid), bp);
                // Unique in the file: engines have a few requests each, and a number of their own.
                end.id = Some(format!("{:#x}", u64::from(pid) << 32 | id));
                end.args
                    .extend(args.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
                out.event(&end)?;
            }
        }
    }
    Ok(())
}
