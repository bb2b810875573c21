//! Reads requests off a connection: heads, bodies by length or chunked, pipelined.
//!
//! Owns: framing of requests and the time of their first byte. Refuses: anything that a test client does not send.

use super::Socket;
use crate::clock::monotonic_ns;
use std::io;

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) path: String,
    pub(super) body: serde_json::Value,
    /// The read that brought its first byte returned.
    pub(super) t0_ns: u64,
    /// On the wire.
    pub(super) bytes: u64,
    /// The client asked to close after the response.
    pub(super) close: bool,
}

impl Request {
    pub(super) fn model(&self) -> Option<String> {
        self.body["model"].as_str().map(str::to_owned)
    }
}

/// What was read and not used yet.
#[derive(Debug, Default)]
pub(super) struct Reader {
    buffer: Vec<u8>,
    /// When the first byte of `buffer` was read.
    first_ns: u64,
    last_read_ns: u64,
}

impl Reader {
    /// The next request; `None` when the client ended the connection between requests.
    pub(super) fn next(&mut self, socket: &Socket) -> io::Result<Option<Request>> {
        let head_end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill(socket)? {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        };
        let t0_ns = self.first_ns;
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).into_owned();
        let header = |name: &str| {
            head.lines().skip(1).find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        if header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let (body, end) =
            if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
                self.chunked(socket, head_end)?
            } else {
                let length = header("content-length")
                    .map_or(Ok(0), |value| value.parse().map_err(|_| bad("Content-Length")))?;
                self.need(socket, head_end + length)?;
                (
                    self.buffer[head_end..head_end + length].to_vec(),
                    head_end + length,
                )
            };
        self.buffer.drain(..end);
        self.first_ns = self.last_read_ns;
        Ok(Some(Request {
            path: head.split(' ').nth(1).unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or(serde_json::Value::Null),
            t0_ns,
            bytes: end as u64,
            close: header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        }))
    }

    fn chunked(&mut self, socket: &Socket, mut at: usize) -> io::Result<(Vec<u8>, usize)> {
        let mut body = Vec::new();
        loop {
            let line_end = loop {
                if let Some(n) = self.buffer[at..].windows(2).position(|w| w == b"\r\n") {
                    break at + n;
                }
                self.need(socket, self.buffer.len() + 1)?;
            };
            let size = std::str::from_utf8(&self.buffer[at..line_end])
                .ok()
                .and_then(|s| usize::from_str_radix(s, 16).ok());
            let size = size.ok_or_else(|| bad("chunk size"))?;
            let data = line_end + 2;
            self.need(socket, data + size + 2)?;
            body.extend_from_slice(&self.buffer[data..data + size]);
            at = data + size + 2;
            if size == 0 {
                return Ok((body, at));
            }
        }
    }

    fn need(&mut self, socket: &Socket, length: usize) -> io::Result<()> {
        while self.buffer.len() < length {
            if !self.fill(socket)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        let old = self.buffer.len();
        self.buffer.resize(old + 64 * 1024, 0);
        let result = loop {
            match socket.read(&mut self.buffer[old..]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.wait_readable()?,
                other => break other,
            }
        };
        self.last_read_ns = monotonic_ns();
        if old == 0 {
            self.first_ns = self.last_read_ns;
        }
        self.buffer.truncate(old + *result.as_ref().unwrap_or(&0));
        result.map(|n| n > 0)
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("bad {what}"))
}
