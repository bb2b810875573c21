//! What proves that a gateway's exchange was for a request of an engine.
//!
//! Owns: the kinds of evidence, their order, and when there is too little. Refuses: guessing: of two that could be meant,
//! neither is.
//!
//! The id of a response is its engine's own and made for it alone, so two that agree are the same one. A trace may have
//! many requests, some at the same time: of those, the parent span and the body tell apart. A body may be sent twice.

use super::part::{GatewayExchange, GatewayOutcome, GatewayPart, Joined, JoinedBy, JoinedTrace};
use crate::{Nanos, RequestRecord, Status, TraceSource, identity::hex_id, trace::Trace};
use std::sync::Arc;

/// What both sides may have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Response(Arc<str>),
    Trace(Arc<str>),
    Content(u64),
}

fn keys<'a>(
    response: Option<&'a Arc<str>>,
    trace: Option<&'a Arc<str>>,
    digest: Option<u64>,
) -> impl Iterator<Item = Key> + use<'a> {
    let response = response.map(|id| Key::Response(Arc::clone(id)));
    let trace = trace.map(|id| Key::Trace(Arc::clone(id)));
    response.into_iter().chain(trace).chain(digest.map(Key::Content))
}

/// An exchange between a gateway and its client.
#[derive(Debug)]
pub(crate) struct Served {
    pub(super) id: u64,
    /// The trace that its headers name.
    trace: Option<Arc<str>>,
    parent: Option<Box<str>>,
    t0: Option<Nanos>,
    /// Of its body, once that was read.
    pub(super) digest: Option<u64>,
    response: Option<Arc<str>>,
    ended: Option<(Nanos, Box<GatewayExchange>)>,
    /// When requests of engines that were for it began and ended.
    pub(super) joined: Vec<(Nanos, Nanos)>,
    /// Requests of engines may have been for it, or not.
    pub(super) ambiguous: bool,
}

impl Served {
    pub(crate) fn new(id: u64, trace: Option<&Trace>, t0: Option<Nanos>) -> Served {
        Served {
            id,
            trace: trace.map(|trace| Arc::from(&*trace.id)),
            parent: trace.and_then(|trace| trace.parent.clone()),
            t0,
            digest: None,
            response: None,
            ended: None,
            joined: Vec::new(),
            ambiguous: false,
        }
    }

    /// Of an exchange whose beginning is not known any more.
    pub(super) fn of_exchange(id: u64, exchange: &GatewayExchange) -> Served {
        let named = exchange.trace_source != TraceSource::Derived;
        Served {
            trace: named.then(|| Arc::from(&*exchange.trace_id)),
            parent: exchange.parent_span_id.as_deref().map(Box::from),
            ..Served::new(id, None, exchange.t0_ns)
        }
    }

    pub(super) fn end(&mut self, at: Nanos, exchange: GatewayExchange) {
        self.response = exchange.response_id.as_deref().map(Arc::from);
        self.ended = Some((at, Box::new(exchange)));
    }

    pub(super) fn ended_at(&self) -> Option<Nanos> {
        self.ended.as_ref().map(|(at, _)| *at)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + use<'_> {
        keys(self.response.as_ref(), self.trace.as_ref(), self.digest)
    }

    /// A request that was for it ran at the same time as this one.
    pub(super) fn is_taken_while(&self, asked: &Asked) -> bool {
        self.joined.iter().any(|taken| overlap(*taken, asked.interval()))
    }

    /// Both responses have an id, and not the same one.
    pub(super) fn answers_otherwise(&self, asked: &Asked) -> bool {
        self.response.is_some() && asked.response.is_some() && self.response != asked.response
    }

    fn was_open_at(&self, at: Option<Nanos>) -> bool {
        let end = self.ended_at().unwrap_or(Nanos::MAX);
        self.t0
            .zip(at)
            .is_some_and(|(begin, at)| (begin..=end).contains(&at))
    }

    /// What is told of it, once it has ended.
    pub(super) fn settled(self) -> Option<GatewayExchange> {
        let (_, mut exchange) = self.ended?;
        exchange.outcome = match (self.joined.is_empty(), self.ambiguous) {
            (false, _) => GatewayOutcome::Joined,
            (true, true) => GatewayOutcome::Ambiguous,
            (true, false) => GatewayOutcome::NoEngine,
        };
        Some(*exchange)
    }

    /// A request that was for it has ended. A gateway may learn that its client is gone without any call that shows it
    /// (nginx asks epoll alone), and then leaves the engine: an answer that was cut, and that the engine would have gone on
    /// with, is the client's doing.
    pub(super) fn take(&mut self, asked: &Asked) {
        self.joined.push(asked.interval());
        if let Some((_, exchange)) = &mut self.ended
            && asked.cancelled
            && exchange.status == Status::ServerError
            && exchange.http_status.is_none_or(|status| status < 400)
        {
            exchange.status = Status::Cancelled;
        }
    }

    /// Its part in the record of a request that was for it.
    pub(super) fn part(&self, asked: &Asked, by: JoinedBy) -> Joined {
        let exchange = self.ended.as_ref().map(|(_, exchange)| &**exchange);
        let status = exchange.map_or(Status::Incomplete, |exchange| exchange.status);
        let seconds = |from: Option<Nanos>, to: Option<Nanos>| Some(to?.checked_sub(from?)? as f64 / 1e9);
        // The engine's last write may return when the gateway has passed on what it wrote: T4 is the end of that call, and
        // nothing leaves the gateway before it has left the engine.
        let t4 = match (exchange.and_then(|exchange| exchange.t4_ns), status) {
            (Some(t4), Status::Ok) => Some(t4.max(asked.t4.unwrap_or(t4))),
            (t4, _) => t4,
        };
        let trace = self.trace.as_ref().filter(|_| asked.trace.is_none());
        Joined {
            request: asked.id,
            part: GatewayPart {
                id: hex_id(self.id),
                name: exchange.map_or_else(|| Arc::from(""), |exchange| Arc::clone(&exchange.gateway)),
                parent_span_id: self.parent.as_deref().map(str::to_owned),
                joined_by: by,
                status,
                http_status: exchange.and_then(|exchange| exchange.http_status),
                t0_ns: self.t0,
                first_byte_ns: exchange.and_then(|exchange| exchange.first_byte_ns),
                t4_ns: t4,
                before_s: seconds(self.t0, asked.t0),
                after_s: seconds(asked.t4, t4).filter(|_| status != Status::Incomplete),
            },
            trace: trace.map(|id| JoinedTrace {
                id: id.to_string(),
                source: exchange.map_or_else(TraceSource::default, |exchange| exchange.trace_source),
                parent_span_id: self.parent.as_deref().map(str::to_owned),
            }),
        }
    }
}

/// A request of an engine, ended.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(super) id: u64,
    trace: Option<Arc<str>>,
    parent: Option<Box<str>>,
    t0: Option<Nanos>,
    t4: Option<Nanos>,
    ended: Nanos,
    cancelled: bool,
    response: Option<Arc<str>>,
    digest: Option<u64>,
}

impl Asked {
    /// Of the record that is told of it; `digest`: of its body.
    pub(crate) fn new(id: u64, record: &RequestRecord, digest: Option<u64>, at: Nanos) -> Asked {
        let named = record.trace_source != TraceSource::Derived;
        Asked {
            id,
            trace: named.then(|| Arc::from(&*record.trace_id)),
            parent: record.parent_span_id.as_deref().map(Box::from),
            t0: record.t0_ns,
            t4: record.t4_ns,
            ended: at,
            cancelled: record.status == Status::Cancelled,
            response: record.response_id.as_deref().map(Arc::from),
            digest,
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + use<'_> {
        keys(self.response.as_ref(), self.trace.as_ref(), self.digest)
    }

    /// From its begin to its end.
    pub(super) fn interval(&self) -> (Nanos, Nanos) {
        (self.t0.unwrap_or(self.ended), self.ended)
    }
}

pub(super) fn overlap(one: (Nanos, Nanos), other: (Nanos, Nanos)) -> bool {
    one.0 < other.1 && other.0 < one.1
}

/// Which exchange of a gateway a request was for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    None,
    One(u64, JoinedBy),
    /// One of these.
    Ambiguous(Vec<u64>),
}

/// Which of these a request was for.
pub(super) fn choose(asked: &Asked, candidates: &[&Served]) -> Choice {
    let those = |like: &dyn Fn(&Served) -> bool| -> Vec<&Served> {
        candidates.iter().copied().filter(|served| like(served)).collect()
    };
    let responds = those(&|served| same(served.response.as_ref(), asked.response.as_ref()));
    if !responds.is_empty() {
        return one_of(&responds, JoinedBy::Response);
    }
    let has_body = |served: &Served| served.digest.is_some() && served.digest == asked.digest;
    let mut traced =
        those(&|served| served.was_open_at(asked.t0) && same(served.trace.as_ref(), asked.trace.as_ref()));
    narrow(&mut traced, |served| !served.answers_otherwise(asked));
    narrow(&mut traced, |served| served.parent == asked.parent);
    narrow(&mut traced, has_body);
    if !traced.is_empty() {
        return one_of(&traced, JoinedBy::Trace);
    }
    let alike =
        those(&|served| served.was_open_at(asked.t0) && has_body(served) && !served.answers_otherwise(asked));
    one_of(&alike, JoinedBy::Content)
}

fn same(one: Option<&Arc<str>>, other: Option<&Arc<str>>) -> bool {
    one.is_some() && one == other
}

/// Leaves those that fit, if any does.
fn narrow(served: &mut Vec<&Served>, fits: impl Fn(&Served) -> bool) {
    if served.iter().any(|served| fits(served)) {
        served.retain(|served| fits(served));
    }
}

fn one_of(served: &[&Served], by: JoinedBy) -> Choice {
    match served {
        [] => Choice::None,
        [one] => Choice::One(one.id, by),
        several => Choice::Ambiguous(several.iter().map(|served| served.id).collect()),
    }
}
