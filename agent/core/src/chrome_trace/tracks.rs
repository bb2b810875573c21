//! Tracks beside the requests: an engine's steps and load, a GPU's readings.
//!
//! Owns: their lanes, counters and units. Refuses: a value for a time of which nothing was told.

use super::event::{Event, Out, micros};
use super::lanes::Lanes;
use super::{GpuMoment, History, Moment, TooLarge};
use crate::Nanos;
use crate::observation::{EngineStep, StepKind};
use std::sync::Arc;

/// The first lane of a process.
pub(super) const STEPS: u32 = 1;

/// Names a lane, and gives it its place.
pub(super) fn lane(out: &mut Out, pid: u32, tid: u32, name: &str) -> Result<(), TooLarge> {
    out.event(&Event::meta("thread_name", pid, Some(tid), "name", name.into()))?;
    out.event(&Event::meta(
        "thread_sort_index",
        pid,
        Some(tid),
        "sort_index",
        tid.into(),
    ))
}

/// Draws an engine's steps; answers the next free lane. Engine cores that work side by side are on different ones.
pub(super) fn steps(
    history: &History<'_>,
    out: &mut Out,
    pid: u32,
    engine: &Arc<str>,
) -> Result<u32, TooLarge> {
    let mut steps: Vec<&EngineStep> = history
        .moments
        .iter()
        .filter_map(|moment| match moment {
            Moment::Step(step) if step.engine == *engine => Some(step),
            _ => None,
        })
        .collect();
    if steps.is_empty() {
        return Ok(STEPS);
    }
    let begin = |step: &EngineStep| step.start.filter(|start| *start <= step.end).unwrap_or(step.end);
    steps.sort_by_key(|step| (begin(step), step.end));
    let mut lanes = Lanes::default();
    for step in steps {
        let from = begin(step);
        let tid = STEPS + lanes.take(micros(from), micros(step.end));
        let name = match step.kind {
            Some(kind) => kind.as_str(),
            None => "step",
        };
        // Where its beginning is not known, it is the moment at which its tokens were there.
        let mut event = if let Some(start) = step.start.filter(|start| *start <= step.end) {
            Event::slice(name, (start, step.end), pid, tid)
        } else {
            let mut event = Event::new("i", name, step.end, pid);
            (event.s, event.tid) = (Some("t"), Some(tid));
            event
        };
        event.cat = Some("step");
        event.cname = match step.kind {
            Some(StepKind::Prefill) => Some("thread_state_iowait"),
            Some(StepKind::Decode) => Some("thread_state_running"),
            Some(StepKind::Mixed) => Some("thread_state_runnable"),
            None => None,
        };
        event.arg("requests", step.requests);
        event.arg("prefill_tokens", step.prefill_tokens);
        event.arg("decode_tokens", step.decode_tokens);
        event.arg("source", Some(step.source.as_str()));
        out.event(&event)?;
    }
    for index in 0..lanes.count() {
        lane(out, pid, STEPS + index, "engine steps")?;
    }
    Ok(STEPS + lanes.count())
}

/// Draws what an engine's scheduler told: requests that run and wait, and how full its cache is.
pub(super) fn loads(
    history: &History<'_>,
    out: &mut Out,
    pid: u32,
    engine: &Arc<str>,
) -> Result<(), TooLarge> {
    let mut loads: Vec<_> = history
        .moments
        .iter()
        .filter_map(|moment| match moment {
            Moment::Load { engine: of, at, load } if of == engine => Some((*at, load)),
            _ => None,
        })
        .collect();
    loads.sort_by_key(|(at, _)| *at);
    for (at, load) in loads {
        let mut event = Event::new("C", "requests", at, pid);
        event.arg("running", Some(load.running));
        event.arg("waiting", Some(load.waiting));
        out.event(&event)?;
        counter(
            out,
            pid,
            at,
            "KV cache used",
            "%",
            load.kv_cache_usage.map(|ratio| ratio * 100.0),
        )?;
    }
    Ok(())
}

/// Draws a GPU's readings. Means begin with the reading before, as they are of the time since then.
pub(super) fn gpu(history: &History<'_>, out: &mut Out, pid: u32, gpu: &Arc<str>) -> Result<(), TooLarge> {
    let mut readings: Vec<&GpuMoment> = history
        .gpu_moments()
        .filter(|moment| moment.gpu == *gpu)
        .collect();
    readings.sort_by_key(|reading| reading.at);
    for reading in readings {
        let begin = reading
            .since
            .filter(|since| *since <= reading.at)
            .unwrap_or(reading.at);
        let utilization = reading.utilization.map(|ratio| ratio * 100.0);
        let memory = reading.memory_used_bytes.map(|bytes| bytes / f64::from(1 << 20));
        counter(out, pid, begin, "utilization", "%", utilization)?;
        counter(out, pid, begin, "power", "W", reading.power_watts)?;
        counter(out, pid, reading.at, "memory used", "MiB", memory)?;
        if reading.away {
            let mut event = Event::new("i", "can't be read", reading.at, pid);
            event.s = Some("p");
            out.event(&event)?;
        }
    }
    Ok(())
}

/// A value that holds until the next of its name. Infinities and NaN are no JSON, and no readings either.
fn counter(
    out: &mut Out,
    pid: u32,
    at: Nanos,
    name: &str,
    unit: &str,
    value: Option<f64>,
) -> Result<(), TooLarge> {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return Ok(());
    };
    let mut event = Event::new("C", name, at, pid);
    // Three decimals are more than any of them is good for.
    event.arg(unit, Some((value * 1000.0).round() / 1000.0));
    out.event(&event)
}
