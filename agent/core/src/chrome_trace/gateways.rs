//! Gateways: a slice for each of their exchanges, in it what they did before, between and after the engines' requests, and
//! arrows to those.
//!
//! Owns: their lanes and arguments. Refuses: an exchange whose beginning is not known, and a part of it whose ends are not
//! in order.

use super::event::{Event, Out, micros};
use super::lanes::Lanes;
use super::requests::{Places, colour};
use super::{History, TooLarge, tracks};
use crate::gateway::GatewayPart;
use crate::{Nanos, RequestRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first lane of a gateway.
const LANES: u32 = 1;

/// One exchange, and the requests of engines that were for it.
struct Exchange<'a> {
    part: &'a GatewayPart,
    from: Nanos,
    to: Nanos,
    /// In the order in which they began, each with what the gateway did for it.
    requests: Vec<(&'a RequestRecord, &'a GatewayPart)>,
}

/// Draws what a gateway served of the requests that are in the trace.
pub(super) fn of_gateway(
    history: &History<'_>,
    out: &mut Out,
    pid: u32,
    gateway: &Arc<str>,
    places: &Places<'_>,
) -> Result<(), TooLarge> {
    let mut lanes = Lanes::default();
    let mut arrows = 0_u64;
    for exchange in exchanges(history, gateway) {
        let tid = LANES + lanes.take(micros(exchange.from), micros(exchange.to));
        slices(&exchange, out, pid, tid)?;
        for (request, _) in &exchange.requests {
            let Some((place, at)) = places.get(&*request.id).zip(request.t0_ns) else {
                continue;
            };
            arrows += 1;
            for (ph, (of, tid), bp) in [("s", (pid, tid), None), ("f", *place, Some("e"))] {
                let mut end = Event::new(ph, "asks", at, of);
                (end.cat, end.tid, end.bp) = (Some("gateway"), Some(tid), bp);
                // Unique in the file, as those of engines are: each process has a number of its own.
                end.id = Some(format!("{:#x}", u64::from(pid) << 32 | arrows));
                out.event(&end)?;
            }
        }
    }
    for lane in 0..lanes.count() {
        tracks::lane(out, pid, LANES + lane, "exchanges")?;
    }
    Ok(())
}

/// By their beginnings, and by id where those are the same, so that the same requests make the same file.
fn exchanges<'a>(history: &History<'a>, gateway: &Arc<str>) -> Vec<Exchange<'a>> {
    let mut by_id: BTreeMap<&str, Exchange<'a>> = BTreeMap::new();
    for &(record, part) in history.gateways.iter().filter(|(_, part)| part.name == *gateway) {
        let (Some(from), Some(asked)) = (part.t0_ns, record.t0_ns) else {
            continue;
        };
        // A client that goes away ends the exchange before the engine ends its request.
        let ends = [part.first_byte_ns, part.t4_ns, record.t4_ns, Some(asked)];
        let to = ends.into_iter().flatten().max().unwrap_or(from);
        let exchange = by_id.entry(&part.id).or_insert_with(|| Exchange {
            part,
            from: from.min(asked),
            to,
            requests: Vec::new(),
        });
        exchange.from = exchange.from.min(asked);
        exchange.to = exchange.to.max(to);
        exchange.requests.push((record, part));
    }
    let mut all: Vec<Exchange<'a>> = by_id.into_values().collect();
    all.sort_by_key(|exchange| exchange.from);
    for exchange in &mut all {
        exchange
            .requests
            .sort_by(|(one, _), (other, _)| (one.t0_ns, &one.id).cmp(&(other.t0_ns, &other.id)));
    }
    all
}

fn slices(exchange: &Exchange<'_>, out: &mut Out, pid: u32, tid: u32) -> Result<(), TooLarge> {
    let part = exchange.part;
    let (first, last) = (exchange.requests.first(), exchange.requests.last());
    let name = first.map_or("exchange", |(record, _)| &record.model);
    let mut slice = Event::slice(name, (exchange.from, exchange.to), pid, tid);
    slice.cat = Some("gateway");
    slice.cname = colour(part.status);
    slice.arg("id", Some(part.id.as_str()));
    slice.arg("trace_id", first.map(|(record, _)| record.trace_id.as_str()));
    let ids: Vec<&str> = exchange.requests.iter().map(|(record, _)| &*record.id).collect();
    slice.arg("requests", Some(ids.join(", ")));
    slice.arg("joined_by", Some(part.joined_by.as_str()));
    slice.arg("status", Some(part.status.as_str()));
    slice.arg("http_status", part.http_status);
    slice.arg("before_s", first.and_then(|(_, part)| part.before_s));
    slice.arg("after_s", last.and_then(|(_, part)| part.after_s));
    out.event(&slice)?;
    let mut reached = exchange.from;
    let mut phase = |name: &str, from: Nanos, to: Nanos| {
        if from > to || from < reached {
            return Ok(());
        }
        reached = to;
        let mut phase = Event::slice(name, (from, to), pid, tid);
        phase.cat = Some("phase");
        out.event(&phase)
    };
    let mut since = Some(exchange.from);
    for (at, (record, _)) in exchange.requests.iter().enumerate() {
        let Some(asked) = record.t0_ns else { continue };
        if let Some(since) = since {
            phase(if at == 0 { "before" } else { "between" }, since, asked)?;
        }
        since = record.t4_ns;
        if let Some(answered) = record.t4_ns {
            phase("engine", asked, answered)?;
        }
    }
    if let Some((since, end)) = since.zip(part.t4_ns) {
        phase("after", since, end)?;
    }
    Ok(())
}
