//! One connection: where each direction's bytes stand, and what its control events mean.
//!
//! Owns: stream offsets (gaps, overlaps), the decoders, which side of the connection the process is. Refuses: pairing
//! (`pairing`), limits and eviction (`pipeline`).

use crate::{
    Anomaly, EngineInfo,
    context::Context,
    event::{Closed, Socket},
    exchange::reason,
    link::Link,
    pairing::Pairing,
    status::End,
    wire::http1::{Decoder, HttpEvent},
};
use infertap_abi::{Direction, Role, Transport};
use std::{net::IpAddr, sync::Arc};

/// What becomes of a connection after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// Its bytes are of no use.
    Ignore,
}

/// `errno`s of a read or write that say nothing about the peer: EBADF, ENOMEM, EFAULT, EINVAL, ENOBUFS. Every other one
/// (EPIPE, ECONNRESET, ETIMEDOUT, …) means that it is gone. 0, where the probe can't see it, is taken for those too:
/// they are nearly all failures of a socket that worked before.
const ERRNO_OF_OUR_SIDE: [u16; 5] = [9, 12, 14, 22, 105];

/// One connection of a serving process.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) tgid: u32,
    /// The other end, where that is known.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) engine: Option<Arc<EngineInfo>>,
    /// The pipeline's count of changes to its engines when `engine` was looked up.
    pub(crate) engine_epoch: u64,
    /// Tokens were counted that were not told yet, and the pipeline knows.
    pub(crate) unflushed: bool,
    /// State bytes, as last estimated.
    pub(crate) bytes: usize,
    role: Side,
    /// Positions of the next byte of each direction; `None` until the first of a joined connection.
    next_in: Option<u64>,
    next_out: Option<u64>,
    requests: Decoder,
    responses: Decoder,
    pub(crate) pairing: Pairing,
    /// Nothing will be written any more. What is still read is drained so that the close does not reset the connection
    /// (llama.cpp's server does it when it ends keep-alive): a request among it is never served, and sent again elsewhere.
    draining: bool,
    transport: Transport,
    /// No byte of it was seen yet; `true` in it: it was open before.
    unopened: Option<bool>,
    /// It is between the engine's own processes, and no HTTP.
    link: Option<Box<Link>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Server,
    /// The agent came too late to see; the bytes will tell.
    Unknown,
}

impl Connection {
    /// A new connection. `joined`: what it carried before is unknown; `swallow`: and told of already. `None` when the
    /// process is not its server: what it asks of others is no request of its own.
    pub(crate) fn new(socket: Socket, joined: bool, swallow: bool) -> Option<Connection> {
        let role = match socket.role {
            Role::Accepted => Side::Server,
            Role::Unknown => Side::Unknown,
            Role::Listen | Role::Connected | Role::Paired => return None,
        };
        let (mut requests, mut responses) = (Decoder::request(), Decoder::response());
        if joined {
            requests.resync();
            responses.resync();
        }
        let start = (!joined).then_some(0);
        Some(Connection {
            tgid: socket.tgid,
            peer: None,
            engine: None,
            engine_epoch: 0,
            unflushed: false,
            bytes: 0,
            role,
            next_in: start,
            next_out: start,
            requests,
            responses,
            pairing: Pairing::new(joined, swallow),
            draining: false,
            transport: socket.transport,
            unopened: Some(joined),
            link: None,
        })
    }

    /// Bytes moved. `bytes` are the first of `len`.
    pub(crate) fn data(
        &mut self,
        direction: Direction,
        offset: u64,
        len: u32,
        bytes: &[u8],
        context: &mut Context<'_>,
    ) -> Verdict {
        let next = if direction == Direction::In {
            &mut self.next_in
        } else {
            &mut self.next_out
        };
        let expected = next.unwrap_or(offset);
        let end = offset.saturating_add(u64::from(len));
        *next = Some(expected.max(end));
        // What was there before is not taken twice.
        let seen = expected.saturating_sub(offset);
        if seen > 0 {
            context.anomalies.add(Anomaly::Overlap);
            if end <= expected {
                return Verdict::Keep;
            }
        }
        let gap = offset.saturating_sub(expected);
        let captured = bytes.len().min(len as usize);
        let fresh = bytes.get(seen as usize..captured).unwrap_or_default();
        let missing = end - offset.max(expected) - fresh.len() as u64;
        if self.is_link(direction, gap, fresh, context)
            && let Some(link) = &mut self.link
        {
            // Not read when hooks are off. One that was joined is followed until it is sure that it is no HTTP.
            if context.config.engine_hooks || link.is_unproven() {
                link.data(direction, gap, fresh, missing, context);
            }
            return if link.is_dead() || !(context.config.engine_hooks || link.is_unproven()) {
                Verdict::Ignore
            } else {
                Verdict::Keep
            };
        }
        match direction {
            Direction::In if self.draining => return Verdict::Keep,
            Direction::In => {
                if self.role == Side::Unknown && !self.settle_role(fresh, is_request_start, is_response_start)
                {
                    return self.give_up(context);
                }
                self.lose_in(gap, context);
                self.feed_in(fresh, context);
                self.lose_in(missing, context);
            }
            Direction::Out => {
                if self.role == Side::Unknown && !self.settle_role(fresh, is_response_start, is_request_start)
                {
                    return self.give_up(context);
                }
                self.lose_out(gap, context);
                self.feed_out(fresh, context);
                self.lose_out(missing, context);
            }
            Direction::None => {}
        }
        self.verdict(context)
    }

    /// Whether it is between the engine's own processes: the first bytes tell. Joined in the middle of a message they may
    /// mislead; the start of an HTTP message then sets that right, as long as nothing else was understood.
    fn is_link(&mut self, direction: Direction, gap: u64, bytes: &[u8], context: &Context<'_>) -> bool {
        let http = match direction {
            Direction::In => is_request_start(bytes),
            _ => is_response_start(bytes),
        };
        if http && self.link.as_ref().is_some_and(|link| link.is_unproven()) {
            self.link = None;
        } else if !bytes.is_empty()
            && let Some(joined) = self.unopened.take()
            && self.role == Side::Server
        {
            let joined = joined || gap > 0;
            if Link::begins(joined, self.transport, http, bytes, context) {
                self.link = Some(Box::new(Link::new(joined)));
            }
        }
        self.link.is_some()
    }

    /// Judges by the first bytes of a piece which side the process is; `false`: it is the client.
    fn settle_role(&mut self, bytes: &[u8], server: fn(&[u8]) -> bool, client: fn(&[u8]) -> bool) -> bool {
        if server(bytes) {
            self.role = Side::Server;
        }
        !client(bytes)
    }

    fn feed_in(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        let Connection {
            requests,
            responses,
            pairing,
            ..
        } = self;
        pairing.inbound(
            context.arrived,
            context.at,
            !requests.in_message() && requests.buffered() == 0,
        );
        requests.feed(bytes, &mut |event| pairing.on_request(event, responses, context));
    }

    fn lose_in(&mut self, len: u64, context: &mut Context<'_>) {
        if len == 0 {
            return;
        }
        let Connection {
            requests,
            responses,
            pairing,
            ..
        } = self;
        pairing.in_gap(true);
        let mut kept = 0;
        let mut truncated = false;
        requests.gap(len, &mut |event| {
            match event {
                HttpEvent::BodyGap(len) => kept += len,
                HttpEvent::End { truncated: true } => truncated = true,
                _ => {}
            }
            pairing.on_request(event, responses, context);
        });
        pairing.in_gap(false);
        if truncated || kept < len {
            pairing.requests_lost();
        }
    }

    fn feed_out(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        let Connection {
            responses, pairing, ..
        } = self;
        responses.feed(bytes, &mut |event| pairing.on_response(event, context));
        // Outside of every message: the rest of one that began before we came, or whose framing was lost.
        if pairing.wants_raw() {
            pairing.raw(bytes, context);
        }
    }

    fn lose_out(&mut self, len: u64, context: &mut Context<'_>) {
        if len == 0 {
            return;
        }
        let Connection {
            responses, pairing, ..
        } = self;
        let raw = pairing.wants_raw();
        pairing.in_gap(true);
        let mut kept = 0;
        let mut truncated = false;
        responses.gap(len, &mut |event| {
            match event {
                HttpEvent::BodyGap(len) => kept += len,
                HttpEvent::End { truncated: true } => truncated = true,
                _ => {}
            }
            pairing.on_response(event, context);
        });
        pairing.in_gap(false);
        if raw {
            pairing.raw_gap(len, context);
        } else if truncated || kept < len {
            pairing.responses_lost();
        }
    }

    /// The peer will send no more. That alone is no cancellation: see `status`.
    pub(crate) fn eof(&mut self, context: &mut Context<'_>) -> Verdict {
        self.pairing.client_gone();
        self.end_in(context);
        self.verdict(context)
    }

    /// A read or write failed.
    pub(crate) fn error(&mut self, direction: Direction, errno: u16, context: &mut Context<'_>) -> Verdict {
        if ERRNO_OF_OUR_SIDE.contains(&errno) {
            return Verdict::Keep;
        }
        self.pairing.client_gone();
        if direction == Direction::Out {
            // Nothing more can be written, so nothing that is open can be completed.
            self.draining = true;
            self.pairing.finish_all(End::Broken, None, context);
        } else {
            self.end_in(context);
        }
        self.verdict(context)
    }

    /// The process will send no more.
    pub(crate) fn shutdown(&mut self, context: &mut Context<'_>) -> Verdict {
        self.draining = true;
        self.end_out(context);
        self.pairing.finish_all(End::Broken, None, context);
        self.verdict(context)
    }

    /// The process closed it.
    pub(crate) fn close(&mut self, closed: &Closed, context: &mut Context<'_>) {
        if self.link.is_some() {
            return;
        }
        if closed.peer_gone {
            self.pairing.client_gone();
        }
        let unseen = |total: u64, next: Option<u64>| next.map_or(0, |next| total.saturating_sub(next));
        let lost_in = unseen(closed.bytes_in, self.next_in);
        let lost_out = unseen(closed.bytes_out, self.next_out);
        self.lose_in(lost_in, context);
        self.lose_out(lost_out, context);
        for (lost, reason) in [(lost_in, reason::GAP_IN), (lost_out, reason::GAP_OUT)] {
            if lost > 0 {
                self.pairing.end_lost(reason);
            }
        }
        self.end_in(context);
        self.end_out(context);
        self.pairing.finish_all(End::Broken, None, context);
    }

    /// The serving process died.
    pub(crate) fn server_died(&mut self, context: &mut Context<'_>) {
        self.pairing.finish_all(End::ServerDied, None, context);
    }

    /// Nothing happened for too long.
    pub(crate) fn expire(&mut self, context: &mut Context<'_>) {
        self.pairing.finish_all(End::Idle, None, context);
    }

    /// Its state must go.
    pub(crate) fn evict(&mut self, context: &mut Context<'_>) {
        self.pairing.finish_all(End::Lost, Some(reason::EVICTED), context);
    }

    /// No exchange is open that anybody would miss.
    pub(crate) fn is_idle(&self) -> bool {
        self.pairing.is_idle()
    }

    pub(crate) fn flush(&mut self, out: &mut Vec<crate::Observation>) {
        self.pairing.flush(out);
    }

    /// State bytes, about.
    pub(crate) fn estimate_bytes(&self) -> usize {
        size_of::<Connection>()
            + self.requests.heap_bytes()
            + self.responses.heap_bytes()
            + self.pairing.heap_bytes()
            + self.link.as_ref().map_or(0, |link| link.heap_bytes())
    }

    fn end_in(&mut self, context: &mut Context<'_>) {
        let Connection {
            requests,
            responses,
            pairing,
            ..
        } = self;
        pairing.ending(true);
        requests.end(&mut |event| pairing.on_request(event, responses, context));
        pairing.ending(false);
    }

    fn end_out(&mut self, context: &mut Context<'_>) {
        let Connection {
            responses, pairing, ..
        } = self;
        pairing.ending(true);
        responses.end(&mut |event| pairing.on_response(event, context));
        pairing.ending(false);
    }

    fn verdict(&mut self, context: &mut Context<'_>) -> Verdict {
        if self.requests.is_dead() || self.responses.is_dead() || self.pairing.useless {
            return self.give_up(context);
        }
        Verdict::Keep
    }

    fn give_up(&mut self, context: &mut Context<'_>) -> Verdict {
        self.pairing.give_up(context);
        Verdict::Ignore
    }
}

fn is_response_start(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.")
}

fn is_request_start(bytes: &[u8]) -> bool {
    const METHODS: [&[u8]; 9] = [
        b"GET ",
        b"POST ",
        b"PUT ",
        b"DELETE ",
        b"HEAD ",
        b"OPTIONS ",
        b"PATCH ",
        b"CONNECT ",
        b"TRACE ",
    ];
    METHODS.iter().any(|method| bytes.starts_with(method))
}
