//! Receives one response: its head, its framing, its events, their times.
//!
//! Owns: what the client believes about a response. Refuses: sharing a line of code with the agent's own decoders,
//! which it is there to check.

use super::{ClientTruth, Connection, Outcome};
use serde_json::Value;
use std::io;

/// How receiving ended.
pub(super) struct Received {
    pub(super) outcome: Outcome,
    pub(super) reusable: bool,
}

enum Framing {
    Length(usize),
    Chunked,
    Close,
}

/// Body bytes that are not parsed yet.
#[derive(Default)]
struct Body {
    text: Vec<u8>,
    /// Up to here there is no event boundary.
    searched: usize,
}

pub(super) fn receive(
    connection: &mut Connection,
    cancel_after: Option<usize>,
    truth: &mut ClientTruth,
) -> io::Result<Received> {
    let (framing, keep) = loop {
        let (framing, keep) = head(connection, truth)?;
        if truth.status.is_none_or(|status| status >= 200) {
            break (framing, keep);
        }
    };
    let mut body = Body::default();
    let mut length = match framing {
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::Close => None,
    };
    let cut = cancel_after.unwrap_or(usize::MAX);
    loop {
        if matches!(framing, Framing::Chunked) && length.is_none() {
            let size = connection.line()?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| bad("chunk size"))?;
            length = Some(size);
            if size == 0 {
                connection.line()?;
                break;
            }
        }
        if let (Framing::Length(_), Some(0)) = (&framing, length) {
            break;
        }
        let part = connection.some(length.unwrap_or(usize::MAX))?;
        if part.is_empty() {
            if matches!(framing, Framing::Close) {
                break;
            }
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        length = length.map(|length| length - part.len());
        body.text.extend_from_slice(&part);
        if matches!(framing, Framing::Chunked) && length == Some(0) {
            connection.line()?;
            length = None;
        }
        if truth.streamed {
            body.events(connection.now(), truth)?;
            if truth.content_ns.len() >= cut {
                return Ok(Received {
                    outcome: Outcome::Cancelled,
                    reusable: false,
                });
            }
        }
    }
    if !truth.streamed {
        whole(&body.text, connection.now(), truth);
    }
    Ok(Received {
        outcome: Outcome::Complete,
        reusable: keep && !matches!(framing, Framing::Close),
    })
}

fn head(connection: &mut Connection, truth: &mut ClientTruth) -> io::Result<(Framing, bool)> {
    let first = connection.line()?;
    truth.status = Some(
        first
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .ok_or_else(|| bad("status line"))?,
    );
    let (mut framing, mut keep) = (Framing::Close, true);
    loop {
        let line = connection.line()?;
        if line.is_empty() {
            return Ok((framing, keep));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| bad("header"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => framing = Framing::Length(value.parse().map_err(|_| bad("Content-Length"))?),
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => framing = Framing::Chunked,
            "content-type" => truth.streamed = value.starts_with("text/event-stream"),
            "connection" => keep = !value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
}

impl Body {
    /// Takes the complete events.
    fn events(&mut self, now: u64, truth: &mut ClientTruth) -> io::Result<()> {
        while let Some(at) = self.text[self.searched..]
            .windows(2)
            .position(|pair| pair == b"\n\n")
        {
            let end = self.searched + at + 2;
            for line in self.text[..end].split(|byte| *byte == b'\n') {
                if let Some(data) = line.strip_prefix(b"data: ").filter(|data| *data != b"[DONE]") {
                    event(&serde_json::from_slice(data)?, now, truth);
                }
            }
            self.text.drain(..end);
            self.searched = 0;
        }
        self.searched = self.text.len().saturating_sub(1);
        Ok(())
    }
}

fn event(event: &Value, now: u64, truth: &mut ClientTruth) {
    ids_and_usage(event, truth);
    truth.stream_error |= event.get("error").is_some_and(|error| !error.is_null());
    let choices = event["choices"].as_array().map_or(&[][..], Vec::as_slice);
    let filled = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let bears = |choice: &Value| {
        let delta = &choice["delta"];
        filled(&delta["content"]) || filled(&delta["reasoning_content"]) || filled(&choice["text"])
    };
    if choices.iter().any(bears) {
        truth.content_ns.push(now);
    }
}

fn whole(body: &[u8], now: u64, truth: &mut ClientTruth) {
    if let Ok(object) = serde_json::from_slice::<Value>(body) {
        ids_and_usage(&object, truth);
        if truth.status == Some(200) {
            truth.content_ns.push(now);
        }
    }
}

fn ids_and_usage(object: &Value, truth: &mut ClientTruth) {
    if truth.response_id.is_none() {
        truth.response_id = object["id"].as_str().map(str::to_owned);
    }
    if let Some(usage) = object.get("usage").filter(|usage| usage.is_object()) {
        truth.prompt_tokens = usage["prompt_tokens"].as_u64();
        truth.completion_tokens = usage["completion_tokens"].as_u64();
        truth.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    }
    if let Some(timings) = object
        .get("timings")
        .and_then(|value| serde::Deserialize::deserialize(value).ok())
    {
        truth.timings = Some(timings);
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("bad {what}"))
}
