//! Writes scripted responses: event streams on a schedule, whole bodies, errors, breaks.
//!
//! Owns: the bytes and their timing. Refuses: reading requests (`request`).

use super::{
    HeadStyle, Options, Script, ServerTruth, Socket, WriteStyle, engine::Ticket, memory, request::Request,
};
use crate::clock::{monotonic_ns, sleep_until};
use serde_json::{Value, json};
use std::{
    fmt::Write,
    io::{self, IoSlice},
    sync::atomic::{AtomicU64, Ordering},
};

static COUNTER: AtomicU64 = AtomicU64::new(1);

/// One response under way.
struct Reply<'a> {
    socket: &'a Socket,
    script: &'a Script,
    truth: &'a mut ServerTruth,
    /// A head that waits to travel with what follows.
    pending: Vec<u8>,
    /// Its place in the engine, where one computes it.
    ticket: Option<Ticket>,
}

/// Answers `request`; whether the connection stays open.
pub(super) fn reply(socket: &Socket, request: &Request, options: &Options, truth: &mut ServerTruth) -> bool {
    let own = request
        .body
        .get("script")
        .map(|script| serde_json::from_value::<Script>(script.clone()));
    let default = &options.script;
    let (mut script, mut complaint) = match own {
        None => (default.clone(), None),
        Some(Ok(script)) => (script, None),
        Some(Err(error)) => (
            Script {
                status: 400,
                ..default.clone()
            },
            Some(error.to_string()),
        ),
    };
    if script.gpu.is_some() && options.engine.is_none() {
        script.status = 400;
        complaint = Some("this server has no GPU".to_owned());
    }
    let chat = request.path.ends_with("/chat/completions");
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let id = format!(
        "{}-{}-{number}",
        if chat { "chatcmpl" } else { "cmpl" },
        std::process::id()
    );
    if script.nonblocking && socket.make_tight().is_err() {
        return false;
    }
    truth.status = script.status;
    let Ok(_held) = memory::hold(&script) else {
        return false;
    };
    let mut reply = Reply {
        socket,
        script: &script,
        truth,
        pending: Vec::new(),
        ticket: None,
    };
    let result = if script.status != 200 || request.body.is_null() {
        reply.truth.status = if script.status == 200 { 400 } else { script.status };
        reply.error(&complaint.unwrap_or_else(|| "the script says so".to_owned()))
    } else {
        reply.truth.response_id.clone_from(&id);
        let answer = Answer { id, chat, request };
        if let (Some(work), Some(engine)) = (&script.gpu, &options.engine) {
            reply.ticket = Some(engine.submit(work, script.chunks));
        }
        if request.body["stream"] == true {
            reply.stream(&answer)
        } else {
            reply.whole(&answer)
        }
    };
    if let Some(ticket) = reply.ticket.take() {
        reply.truth.queued_ns = Some(ticket.queued_ns);
        (reply.truth.t1_ns, reply.truth.t2_ns, reply.truth.t3_ns) =
            (ticket.t1_ns, ticket.t2_ns, ticket.t3_ns);
    }
    let complete = matches!(result, Ok(true));
    truth.broken = !complete;
    complete && !script.close && !request.close
}

/// What every chunk of one answer shares.
struct Answer<'a> {
    id: String,
    chat: bool,
    request: &'a Request,
}

impl Answer<'_> {
    fn object(&self, choices: &Value, stream: bool) -> Value {
        let object = match (self.chat, stream) {
            (true, true) => "chat.completion.chunk",
            (true, false) => "chat.completion",
            (false, _) => "text_completion",
        };
        json!({"id": self.id, "object": object, "created": 1_700_000_000, "model": self.request.body["model"], "choices": choices})
    }

    fn delta(&self, delta: &Value, text: &str, finish: Option<&str>) -> Value {
        let choice = if self.chat {
            json!({"index": 0, "delta": delta, "finish_reason": finish})
        } else {
            json!({"index": 0, "text": text, "finish_reason": finish})
        };
        self.object(&json!([choice]), true)
    }
}

impl Reply<'_> {
    fn usage(&self) -> Value {
        let (input, output) = (self.script.prompt_tokens, self.truth.tokens);
        json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
    }

    fn text(&self, chunk: u32) -> String {
        if let Some(said) = self.script.say.get(chunk as usize) {
            return said.clone();
        }
        let mut text = String::new();
        for token in 0..self.script.tokens_per_chunk {
            // Writing to a String can't fail.
            let _ = write!(text, " w{chunk}_{token}");
        }
        text.extend(std::iter::repeat_n('x', self.script.padding));
        text
    }

    fn error(&mut self, message: &str) -> io::Result<bool> {
        let status = self.truth.status;
        let body =
            json!({"error": {"message": message, "type": "scripted_error", "code": status}}).to_string();
        let head = format!(
            "HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body.as_bytes()])?;
        Ok(true)
    }

    fn whole(&mut self, answer: &Answer<'_>) -> io::Result<bool> {
        match &mut self.ticket {
            Some(ticket) => while ticket.token() {},
            None => sleep_until(self.truth.t0_ns + self.script.first_gap_us * 1000),
        }
        let text: String = (0..self.script.chunks).map(|chunk| self.text(chunk)).collect();
        self.truth.tokens = self.script.chunks * self.script.tokens_per_chunk;
        let message = json!({"role": "assistant", "content": text});
        let choice = if answer.chat {
            json!({"index": 0, "message": message, "finish_reason": "stop"})
        } else {
            json!({"index": 0, "text": text, "finish_reason": "stop"})
        };
        let mut object = answer.object(&json!([choice]), false);
        object["usage"] = self.usage();
        let body = object.to_string();
        let length = if self.script.close {
            "Connection: close\r\n".to_owned()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        self.head(&format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n"
        ))?;
        if self.script.break_after.is_some() {
            self.send(&[&body.as_bytes()[..body.len() / 2]])?;
            return Ok(false);
        }
        match self.script.write {
            WriteStyle::Split => {
                let (a, b) = body.as_bytes().split_at(body.len() / 2);
                self.send(&[a])?;
                self.send(&[b])?;
            }
            _ => self.send(&[body.as_bytes()])?,
        }
        Ok(true)
    }

    fn stream(&mut self, answer: &Answer<'_>) -> io::Result<bool> {
        let framing = if self.script.close {
            "Connection: close"
        } else {
            "Transfer-Encoding: chunked"
        };
        self.head(&format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n\r\n"
        ))?;
        if self.script.role_chunk && answer.chat {
            self.event(&answer.delta(&json!({"role": "assistant", "content": ""}), "", None))?;
        }
        let start = self.truth.t0_ns + self.script.first_gap_us * 1000;
        for chunk in 0..self.script.chunks {
            if self.script.break_after == Some(chunk) {
                return Ok(false);
            }
            if self.script.error_after == Some(chunk) {
                self.event(
                    &json!({"error": {"message": "scripted failure", "type": "server_error", "code": 500}}),
                )?;
                self.finish()?;
                return Ok(true);
            }
            if self.script.comments {
                self.payload(b": keep-alive\n\n")?;
            }
            let text = self.text(chunk);
            let event = answer.delta(&json!({"content": text}), &text, None);
            if let Some(ticket) = &mut self.ticket {
                ticket.token();
            } else if self.script.first_gap_us + self.script.gap_us > 0 {
                sleep_until(start + u64::from(chunk) * self.script.gap_us * 1000);
            }
            let before = monotonic_ns();
            self.event(&event)?;
            self.truth.content_ns.push(before);
            self.truth.chunks += 1;
            self.truth.tokens += self.script.tokens_per_chunk;
        }
        self.event(&answer.delta(&json!({}), "", Some("stop")))?;
        if answer.request.body["stream_options"]["include_usage"] == true {
            let mut event = answer.object(&json!([]), true);
            event["usage"] = self.usage();
            self.event(&event)?;
        }
        self.payload(b"data: [DONE]\n\n")?;
        self.finish()?;
        Ok(true)
    }

    fn head(&mut self, head: &str) -> io::Result<()> {
        match self.script.head {
            HeadStyle::Alone => self.send(&[head.as_bytes()]),
            HeadStyle::WithBody => {
                self.pending.extend_from_slice(head.as_bytes());
                Ok(())
            }
        }
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        self.payload(format!("data: {event}\n\n").as_bytes())
    }

    fn payload(&mut self, payload: &[u8]) -> io::Result<()> {
        let size = format!("{:x}\r\n", payload.len());
        let (size, end): (&[u8], &[u8]) = if self.script.close {
            (b"", b"")
        } else {
            (size.as_bytes(), b"\r\n")
        };
        match self.script.write {
            WriteStyle::Vectored => self.send(&[size, payload, end]),
            WriteStyle::Whole => self.send(&[&[size, payload, end].concat()]),
            WriteStyle::Split => {
                let (a, b) = payload.split_at(payload.len() / 2);
                self.send(&[&[size, a].concat()])?;
                self.send(&[&[b, end].concat()])
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.script.close {
            Ok(())
        } else {
            self.send(&[b"0\r\n\r\n"])
        }
    }

    /// One write where the kernel takes it all, more where it does not.
    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let mut slices: Vec<IoSlice<'_>> = std::iter::once(&pending[..])
            .chain(parts.iter().copied())
            .filter(|p| !p.is_empty())
            .map(IoSlice::new)
            .collect();
        let mut left: &mut [IoSlice<'_>] = &mut slices;
        while !left.is_empty() {
            self.truth.t4_ns = monotonic_ns();
            let n = self.socket.write_vectored(left)?;
            self.truth.response_bytes += n as u64;
            IoSlice::advance_slices(&mut left, n);
        }
        Ok(())
    }
}
