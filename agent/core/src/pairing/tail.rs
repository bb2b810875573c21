//! The rest of a response whose framing is not known: joined late, or lost by a gap.
//!
//! Owns: following its event stream through the bytes that belong to no message. Refuses: whole messages (`pairing`).

use super::Pairing;
use crate::{
    context::Context,
    exchange::{Exchange, reason},
    status::End,
};

/// The rest of a response whose framing is not known.
#[derive(Debug, Default)]
pub(super) enum Tail {
    /// There is none.
    #[default]
    None,
    /// Whatever comes outside of a message belongs to it.
    Open(Option<Box<Exchange>>),
    /// It ended; what still comes outside of a message is its framing.
    Ended,
}

impl Pairing {
    /// Whether outbound bytes that belong to no message may be the rest of one.
    pub(crate) fn wants_raw(&self) -> bool {
        matches!(self.tail, Tail::Open(_))
    }

    /// Outbound bytes that belong to no message.
    pub(crate) fn raw(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        let Tail::Open(tail) = &mut self.tail else { return };
        if tail.is_none() && !self.queue.is_empty() {
            self.adopt(bytes, context);
        } else {
            let exchange = tail.get_or_insert_with(|| {
                self.sequence += 1;
                let reason = if self.joined {
                    reason::LATE_JOIN
                } else {
                    reason::GAP_OUT
                };
                let mut exchange = Exchange::orphan(self.sequence, reason, context);
                exchange.continue_raw(reason);
                Box::new(exchange)
            });
            exchange.response_data(bytes, context);
        }
        if let Tail::Open(Some(exchange)) = &self.tail
            && exchange.done()
        {
            self.end_tail(End::Lost, context);
        }
    }

    /// What was lost may be the head of the newest request's response: then its stream tells.
    fn adopt(&mut self, bytes: &[u8], context: &mut Context<'_>) {
        let Some(Some(newest)) = self.queue.back_mut() else {
            return;
        };
        if !newest.is_stream() {
            newest.continue_raw(reason::GAP_OUT);
        }
        newest.response_data(bytes, context);
        if newest.is_answered() {
            while self.queue.len() > 1 {
                self.lose_front(context);
            }
            self.tail = Tail::Open(self.pop_front());
        }
    }

    /// Outbound bytes are missing from the rest of a response.
    pub(crate) fn raw_gap(&mut self, len: u64, context: &mut Context<'_>) {
        if let Tail::Open(Some(tail)) = &mut self.tail {
            tail.response_gap(len, context);
        }
    }

    pub(super) fn end_tail(&mut self, end: End, context: &mut Context<'_>) {
        if let Tail::Open(tail) = std::mem::replace(&mut self.tail, Tail::Ended)
            && let Some(exchange) = tail
        {
            exchange.finish(end, self.client_gone, context);
        }
    }
}
