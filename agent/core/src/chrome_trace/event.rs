//! One event of the trace-event format, and the file that they go into.
//!
//! Owns: the members' names and the limit on the whole. Refuses: what is drawn.

use super::TooLarge;
use crate::Nanos;
use serde::Serialize;
use serde_json::{Map, Value};

/// Members that an event has not are left out.
#[derive(Debug, Serialize)]
pub(super) struct Event<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cat: Option<&'a str>,
    /// `X` a slice, `i` an instant, `C` a counter, `s` and `f` the ends of an arrow, `M` a name.
    ph: &'static str,
    /// Microseconds.
    ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<u64>,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tid: Option<u32>,
    /// Of an arrow; a text, since readers take numbers for floats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// How far an instant reaches: `t` a lane, `p` a process, `g` everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) s: Option<&'static str>,
    /// `e`: an arrow ends in the slice around it, not in the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bp: Option<&'static str>,
    /// A colour by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cname: Option<&'static str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) args: Map<String, Value>,
}

impl<'a> Event<'a> {
    pub(super) fn new(ph: &'static str, name: &'a str, at: Nanos, pid: u32) -> Event<'a> {
        Event {
            name,
            cat: None,
            ph,
            ts: micros(at),
            dur: None,
            pid,
            tid: None,
            id: None,
            s: None,
            bp: None,
            cname: None,
            args: Map::new(),
        }
    }

    /// A slice on a lane; `to` is not before `from`.
    pub(super) fn slice(name: &'a str, (from, to): (Nanos, Nanos), pid: u32, tid: u32) -> Event<'a> {
        let mut event = Event::new("X", name, from, pid);
        event.dur = Some(micros(to).saturating_sub(micros(from)));
        event.tid = Some(tid);
        event
    }

    /// Says something of a process or a lane.
    pub(super) fn meta(what: &'a str, pid: u32, tid: Option<u32>, key: &str, value: Value) -> Event<'a> {
        let mut event = Event::new("M", what, 0, pid);
        event.tid = tid;
        event.args.insert(key.to_owned(), value);
        event
    }

    /// Adds an argument, unless it is not known.
    pub(super) fn arg(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.args.insert(key.to_owned(), value.into());
        }
    }
}

/// Whole microseconds.
pub(super) fn micros(at: Nanos) -> u64 {
    at / 1000
}

/// The file, as far as it is written.
pub(super) struct Out {
    bytes: Vec<u8>,
    limit: usize,
    first: bool,
}

impl Out {
    pub(super) fn new(limit: usize) -> Out {
        Out {
            bytes: b"{\"traceEvents\":[\n".to_vec(),
            limit,
            first: true,
        }
    }

    pub(super) fn event(&mut self, event: &Event<'_>) -> Result<(), TooLarge> {
        if !std::mem::take(&mut self.first) {
            self.bytes.extend_from_slice(b",\n");
        }
        self.json(event)
    }

    fn json(&mut self, value: &impl Serialize) -> Result<(), TooLarge> {
        let limit = self.limit;
        // Writing into memory does not fail, and every key is a string.
        let written = serde_json::to_writer(&mut self.bytes, value);
        if written.is_err() || self.bytes.len() > limit {
            return Err(TooLarge { limit });
        }
        Ok(())
    }

    pub(super) fn finish(mut self, about: &Map<String, Value>) -> Result<Vec<u8>, TooLarge> {
        self.bytes
            .extend_from_slice(b"\n],\"displayTimeUnit\":\"ms\",\"otherData\":");
        self.json(about)?;
        self.bytes.extend_from_slice(b"}\n");
        Ok(self.bytes)
    }
}
