//! One connection to a server: sends plans, receives responses, takes the times.
//!
//! Owns: the socket and the buffer of what was received. Refuses: retrying: what happened, happened.

use super::{
    ClientTruth, Outcome, Plan,
    response::{Received, receive},
};
use crate::{
    clock::monotonic_ns,
    scripted::{Address, Socket},
};
use std::io;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    host: String,
    buffer: Vec<u8>,
    used: usize,
    last_recv_ns: u64,
    received: u64,
    /// Nap after each `recv`: a client that does not keep up.
    slow_us: u64,
    /// When to leave, whatever has come by then.
    leave_ns: Option<u64>,
}

impl Connection {
    /// Connects.
    pub fn open(address: &Address) -> io::Result<Connection> {
        Connection::over(address.connect()?, address)
    }

    /// Over a socket that is connected to `address`.
    pub fn over(socket: Socket, address: &Address) -> io::Result<Connection> {
        socket.set_read_timeout(120)?;
        Ok(Connection {
            socket,
            host: address.to_string(),
            buffer: Vec::new(),
            used: 0,
            last_recv_ns: 0,
            received: 0,
            slow_us: 0,
            leave_ns: None,
        })
    }

    /// Makes the client slow: a small receive buffer, and a nap after each `recv`.
    pub fn make_slow(&mut self, nap_us: u64) -> io::Result<()> {
        self.slow_us = nap_us;
        self.socket.make_narrow()
    }

    /// Whether the server has left the connection open, with nothing unread. Looks for a few milliseconds: llama.cpp
    /// closes after a streamed response without saying so in its head.
    pub fn is_alive(&self) -> bool {
        self.used == self.buffer.len() && self.socket.is_quiet(3)
    }

    /// Sends a request and receives its response.
    pub fn exchange(&mut self, plan: &Plan) -> ClientTruth {
        let mut truth = self.send(plan);
        if truth.error.is_none() {
            self.receive(plan, &mut truth);
        }
        truth
    }

    /// Sends a request; its response is received later, in the order of sending.
    pub fn send(&mut self, plan: &Plan) -> ClientTruth {
        let mut truths = self.send_together(std::slice::from_ref(plan));
        truths.swap_remove(0)
    }

    /// Sends several requests in one write (pipelining).
    pub fn send_together(&mut self, plans: &[Plan]) -> Vec<ClientTruth> {
        let wires: Vec<Vec<u8>> = plans.iter().map(|plan| plan.wire(&self.host)).collect();
        let together = wires.concat();
        let sent_ns = monotonic_ns();
        let error = self
            .socket
            .write_all(&together)
            .err()
            .map(|error| format!("can't send: {error}"));
        let truth = |(plan, wire): (&Plan, &Vec<u8>)| ClientTruth {
            sent_ns,
            request_bytes: wire.len() as u64,
            error: error.clone(),
            ..ClientTruth::new(plan)
        };
        plans.iter().zip(&wires).map(truth).collect()
    }

    /// Receives the response of the earliest request that has none yet.
    pub fn receive(&mut self, plan: &Plan, truth: &mut ClientTruth) {
        let before = self.received - (self.buffer.len() - self.used) as u64;
        self.leave_ns = plan.leave_after_ms.map(|ms| truth.sent_ns + ms * 1_000_000);
        match receive(self, plan.cancel_after, truth) {
            Ok(Received { outcome, reusable }) => {
                truth.outcome = outcome;
                truth.reusable = reusable && !plan.close && outcome == Outcome::Complete;
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                truth.outcome = Outcome::Cancelled;
                truth.reusable = false;
            }
            Err(error) => truth.error = Some(error.to_string()),
        }
        truth.last_ns = if truth.outcome == Outcome::Cancelled {
            monotonic_ns()
        } else {
            self.last_recv_ns
        };
        truth.response_bytes = self.received - (self.buffer.len() - self.used) as u64 - before;
    }

    /// Sends a request and reads its chunked response to the end without looking into it; how many bytes it was.
    pub fn drain(&mut self, plan: &Plan) -> io::Result<u64> {
        const END: &[u8] = b"\r\n0\r\n\r\n";
        self.socket.write_all(&plan.wire(&self.host))?;
        let before = self.received;
        let mut tail = Vec::new();
        while tail != END {
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            tail.extend_from_slice(&self.buffer[self.buffer.len().saturating_sub(END.len())..]);
            tail.drain(..tail.len().saturating_sub(END.len()));
            self.used = self.buffer.len();
        }
        Ok(self.received - before)
    }

    /// A line without its end; an error when the stream ends first.
    pub(super) fn line(&mut self) -> io::Result<String> {
        let mut from = self.used;
        loop {
            if let Some(at) = self.buffer[from..].iter().position(|byte| *byte == b'\n') {
                let line = &self.buffer[self.used..from + at];
                let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
                self.used = from + at + 1;
                return Ok(line);
            }
            from = self.buffer.len() - self.used;
            if !self.fill()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            from += self.used;
        }
    }

    /// Up to `limit` bytes, at least one; empty at the end of the stream.
    pub(super) fn some(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        if self.used == self.buffer.len() && !self.fill()? {
            return Ok(Vec::new());
        }
        let n = limit.min(self.buffer.len() - self.used);
        self.used += n;
        Ok(self.buffer[self.used - n..self.used].to_vec())
    }

    /// When the latest `recv` returned.
    pub(super) fn now(&self) -> u64 {
        self.last_recv_ns
    }

    /// Whether it is `deadline_ns` before anything else comes.
    fn nothing_until(&self, deadline_ns: u64) -> bool {
        let left = deadline_ns.saturating_sub(monotonic_ns()).div_ceil(1_000_000);
        left == 0 || self.socket.is_quiet(i32::try_from(left).unwrap_or(i32::MAX))
    }

    fn fill(&mut self) -> io::Result<bool> {
        if self.leave_ns.is_some_and(|leave| self.nothing_until(leave)) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.buffer.drain(..self.used);
        self.used = 0;
        let old = self.buffer.len();
        self.buffer.resize(old + 64 * 1024, 0);
        let result = self.socket.read(&mut self.buffer[old..]);
        self.last_recv_ns = monotonic_ns();
        let n = *result.as_ref().unwrap_or(&0);
        self.buffer.truncate(old + n);
        self.received += n as u64;
        if self.slow_us > 0 {
            std::thread::sleep(std::time::Duration::from_micros(self.slow_us));
        }
        result.map(|n| n > 0)
    }
}
