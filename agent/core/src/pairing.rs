//! Which response answers which request on one connection.
//!
//! Owns: the queue of unanswered requests (keep-alive, pipelining, 1xx, early responses), the rest of a stream that was
//! joined late or lost its framing, and the doubt that loss leaves behind. Refuses: framing (`wire`) and meaning
//! (`exchange`).
//!
//! After loss the pairing may be a guess; every exchange that a guess could touch is marked incomplete. One case is
//! beyond telling: a client that pipelines, and whose lost bytes held whole requests, shifts the answers of later ones
//! by as many. No inference client pipelines.

mod tail;

use crate::{
    Anomaly, Nanos,
    context::Context,
    diagnose::Stalls,
    exchange::{Exchange, reason},
    status::End,
    wire::http1::{Decoder, Head, HttpEvent, RequestHead, ResponseHead},
};
use std::collections::VecDeque;
use tail::Tail;

/// Requests without an answer, inference or not, beyond which a connection is given up.
const MAX_UNANSWERED: usize = 1024;

/// The pairing of one connection.
#[derive(Debug)]
pub(crate) struct Pairing {
    /// Unanswered requests, oldest first. `None`: no inference request, or one that was given up.
    queue: VecDeque<Option<Box<Exchange>>>,
    /// The newest request is still being read.
    receiving: bool,
    /// The oldest request's final response has begun.
    responding: bool,
    tail: Tail,
    /// When the first byte of the request came that is being read, or comes next.
    request_began: Nanos,
    /// When bytes of requests were read last.
    last_read: Nanos,
    sequence: u64,
    /// The server was told that the client is gone.
    client_gone: bool,
    /// The decoders are being told that the stream has ended.
    ending: bool,
    /// The decoders are being told of a gap.
    in_gap: bool,
    /// Requests may have been lost, so new ones may get the answer of others. Holds until all are answered.
    doubt: Option<&'static str>,
    /// Responses may have been lost: when the next one comes, only the newest request is its likely match.
    responses_lost: bool,
    /// Why an answer may have no request: the connection was joined late.
    joined: bool,
    /// The next response without a request was told of before: its state had been dropped.
    swallow: bool,
    /// Nothing more can be learned from this connection.
    pub(crate) useless: bool,
}

impl Pairing {
    /// `joined`: the connection was open before. `swallow`: and its exchange was told of already.
    pub(crate) fn new(joined: bool, swallow: bool) -> Pairing {
        let tail = match (joined, swallow) {
            (true, false) => Tail::Open(None),
            (true, true) => Tail::Ended,
            (false, _) => Tail::None,
        };
        Pairing {
            queue: VecDeque::new(),
            receiving: false,
            responding: false,
            tail,
            request_began: 0,
            last_read: 0,
            sequence: 0,
            client_gone: false,
            ending: false,
            in_gap: false,
            doubt: None,
            responses_lost: false,
            joined,
            swallow,
            useless: false,
        }
    }

    /// Inbound bytes arrive; `idle`: none of the request that they continue was there before.
    pub(crate) fn inbound(&mut self, arrived: Nanos, read: Nanos, idle: bool) {
        if idle {
            // What the read before left in the socket belongs to the request before, and so does a time from then.
            self.request_began = arrived.max(self.last_read.min(read));
        }
        self.last_read = read;
    }

    /// Waits of the response that is being written, or comes next.
    pub(crate) fn stalls(&mut self) -> Option<&mut Stalls> {
        match &mut self.tail {
            Tail::Open(Some(tail)) => Some(tail.stalls()),
            _ => Some(self.queue.front_mut()?.as_mut()?.stalls()),
        }
    }

    pub(crate) fn client_gone(&mut self) {
        self.client_gone = true;
    }

    pub(crate) fn in_gap(&mut self, on: bool) {
        self.in_gap = on;
    }

    pub(crate) fn ending(&mut self, on: bool) {
        self.ending = on;
    }

    /// No exchange is open that anybody would miss.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.iter().all(Option::is_none) && !matches!(self.tail, Tail::Open(Some(_)))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let exchanges = self.queue.iter().flatten().map(|e| e.heap_bytes()).sum::<usize>();
        let tail = match &self.tail {
            Tail::Open(Some(tail)) => tail.heap_bytes(),
            _ => 0,
        };
        self.queue.capacity() * size_of::<usize>() + exchanges + tail
    }

    pub(crate) fn flush(&mut self, out: &mut Vec<crate::Observation>) {
        for exchange in self.queue.iter_mut().flatten() {
            exchange.flush(out);
        }
        if let Tail::Open(Some(tail)) = &mut self.tail {
            tail.flush(out);
        }
    }

    // Requests.

    pub(crate) fn on_request(
        &mut self,
        event: HttpEvent<'_>,
        responses: &mut Decoder,
        context: &mut Context<'_>,
    ) {
        match event {
            HttpEvent::Head {
                head: Head::Request(head),
                bytes,
            } => {
                responses.expect(&head.method);
                self.request_head(&head, bytes, context);
            }
            HttpEvent::Head { .. } | HttpEvent::Upgraded => {}
            HttpEvent::Body(bytes) => {
                if let Some(exchange) = self.received() {
                    exchange.request_data(bytes, context);
                }
            }
            HttpEvent::BodyGap(len) => {
                if let Some(exchange) = self.received() {
                    exchange.request_gap(len);
                }
            }
            HttpEvent::Framing(len) => {
                if let Some(exchange) = self.received() {
                    exchange.request_framing(len);
                }
            }
            HttpEvent::End { truncated } => {
                let in_gap = self.in_gap;
                if let Some(exchange) = self.received() {
                    if truncated && in_gap {
                        exchange.mark(reason::GAP_IN);
                    }
                    exchange.end_request(!truncated, context);
                }
                self.receiving = false;
                self.request_began = context.at;
            }
            HttpEvent::Anomaly(anomaly) => context.anomalies.add(anomaly),
        }
    }

    /// The request that is being read, if anybody wants it.
    fn received(&mut self) -> Option<&mut Exchange> {
        if self.receiving {
            self.queue.back_mut()?.as_deref_mut()
        } else {
            None
        }
    }

    fn request_head(&mut self, head: &RequestHead, bytes: u64, context: &mut Context<'_>) {
        // Nobody asks again before the old answer is there.
        self.end_tail(End::Lost, context);
        self.sequence += 1;
        let began = self.request_began;
        let mut exchange = Exchange::claim(head, bytes, began, self.sequence, context);
        if let (Some(exchange), Some(reason)) = (&mut exchange, self.doubt) {
            exchange.mark(reason);
        }
        self.queue.push_back(exchange.map(Box::new));
        self.receiving = true;
        self.bound_queue(context);
    }

    fn bound_queue(&mut self, context: &mut Context<'_>) {
        let open = self.queue.iter().flatten().count();
        if open > context.config.max_pipelined.max(1)
            && let Some(mut oldest) = self.queue.iter_mut().find_map(Option::take)
        {
            context.anomalies.add(Anomaly::Evicted);
            oldest.mark(reason::EVICTED);
            oldest.finish(End::Lost, false, context);
        }
        if self.queue.len() > MAX_UNANSWERED {
            context.anomalies.add(Anomaly::Evicted);
            self.finish_all(End::Lost, Some(reason::EVICTED), context);
            self.useless = true;
        }
    }

    /// The connection is over, and bytes of its end were never seen.
    pub(crate) fn end_lost(&mut self, reason: &'static str) {
        for exchange in self.queue.iter_mut().flatten() {
            exchange.mark(reason);
        }
        if let Tail::Open(Some(tail)) = &mut self.tail {
            tail.mark(reason);
        }
    }

    /// Inbound bytes are missing, and with them the place in the stream.
    pub(crate) fn requests_lost(&mut self) {
        self.doubt = Some(reason::GAP_IN);
    }

    // Responses.

    pub(crate) fn on_response(&mut self, event: HttpEvent<'_>, context: &mut Context<'_>) {
        match event {
            HttpEvent::Head {
                head: Head::Response(head),
                bytes,
            } => self.response_head(&head, bytes, context),
            HttpEvent::Head { .. } => {}
            HttpEvent::Body(bytes) => {
                if let Some(exchange) = self.answered() {
                    exchange.response_data(bytes, context);
                }
            }
            HttpEvent::BodyGap(len) => {
                if let Some(exchange) = self.answered() {
                    exchange.response_gap(len, context);
                }
            }
            HttpEvent::Framing(len) => {
                if let Some(exchange) = self.answered() {
                    exchange.response_framing(len, context);
                }
            }
            HttpEvent::End { truncated } => self.response_end(truncated, context),
            HttpEvent::Upgraded => self.useless = true,
            HttpEvent::Anomaly(anomaly) => context.anomalies.add(anomaly),
        }
    }

    /// The request whose response is being written, if anybody wants it.
    fn answered(&mut self) -> Option<&mut Exchange> {
        if self.responding {
            self.queue.front_mut()?.as_deref_mut()
        } else {
            None
        }
    }

    fn response_head(&mut self, head: &ResponseHead, bytes: u64, context: &mut Context<'_>) {
        self.end_tail(End::Lost, context);
        self.tail = Tail::None;
        if (100..200).contains(&head.status) && head.status != 101 {
            if let Some(Some(exchange)) = self.queue.front_mut() {
                exchange.response_framing(bytes, context);
            }
            return;
        }
        if std::mem::take(&mut self.responses_lost) {
            while self.queue.len() > 1 {
                self.lose_front(context);
            }
        }
        if self.queue.is_empty() {
            self.sequence += 1;
            let orphan = if std::mem::take(&mut self.swallow) {
                None
            } else {
                let reason = if self.joined {
                    reason::LATE_JOIN
                } else {
                    reason::GAP_IN
                };
                if !self.joined {
                    context.anomalies.add(Anomaly::UnexpectedResponse);
                }
                Some(Box::new(Exchange::orphan(self.sequence, reason, context)))
            };
            self.queue.push_back(orphan);
        }
        self.joined = false;
        self.responding = true;
        if let Some(exchange) = self.answered() {
            exchange.response_head(head, bytes, context);
        }
    }

    fn response_end(&mut self, truncated: bool, context: &mut Context<'_>) {
        if !self.responding {
            return;
        }
        if !truncated {
            let end = if self.ending { End::Closed } else { End::Complete };
            // A success before the whole request was seen: its end must have been lost.
            if let Some(exchange) = self.answered()
                && !exchange.refused()
                && !exchange.request_whole()
            {
                exchange.mark(reason::GAP_IN);
            }
            self.finish_front(end, context);
        } else if self.ending {
            self.finish_front(End::Broken, context);
        } else {
            let reason = if self.in_gap {
                reason::GAP_OUT
            } else {
                reason::UNPARSED
            };
            let followable = self.answered().is_some_and(|exchange| exchange.is_stream());
            if followable {
                if let Some(mut exchange) = self.pop_front() {
                    exchange.continue_raw(reason);
                    self.tail = Tail::Open(Some(exchange));
                }
            } else {
                if let Some(exchange) = self.answered() {
                    exchange.mark(reason);
                }
                self.finish_front(End::Lost, context);
                self.tail = Tail::Ended;
            }
        }
        if self.queue.is_empty() {
            self.doubt = None;
        }
    }

    fn pop_front(&mut self) -> Option<Box<Exchange>> {
        self.responding = false;
        let front = self.queue.pop_front();
        if self.queue.is_empty() {
            self.receiving = false;
        }
        front.flatten()
    }

    fn finish_front(&mut self, end: End, context: &mut Context<'_>) {
        if let Some(exchange) = self.pop_front() {
            exchange.finish(end, self.client_gone, context);
        }
    }

    /// The oldest request's response was among bytes that were lost, though it may have come after they were known to be.
    fn lose_front(&mut self, context: &mut Context<'_>) {
        if let Some(mut exchange) = self.pop_front() {
            exchange.mark(reason::GAP_OUT);
            exchange.finish(End::Lost, self.client_gone, context);
        }
    }

    /// Outbound bytes are missing, and with them the place in the stream: whose response comes next is a guess.
    pub(crate) fn responses_lost(&mut self) {
        for exchange in self.queue.iter_mut().flatten() {
            exchange.mark(reason::GAP_OUT);
        }
        self.responses_lost = true;
        if !matches!(self.tail, Tail::Open(_)) {
            self.tail = Tail::Open(None);
        }
    }

    /// Every open exchange ends, for the same reason.
    pub(crate) fn finish_all(&mut self, end: End, mark: Option<&'static str>, context: &mut Context<'_>) {
        self.end_tail(end, context);
        self.responding = false;
        self.receiving = false;
        for mut exchange in std::mem::take(&mut self.queue).into_iter().flatten() {
            if let Some(reason) = mark {
                exchange.mark(reason);
            }
            exchange.finish(end, self.client_gone, context);
        }
    }

    /// The stream is not HTTP any more: what is open can't be followed.
    pub(crate) fn give_up(&mut self, context: &mut Context<'_>) {
        self.finish_all(End::Lost, Some(reason::UNPARSED), context);
        self.useless = true;
    }
}
