//! Gateways: which of their exchanges with clients were for which requests of engines.
//!
//! Owns: the exchanges of gateways and the requests of engines while one may still turn out to be for the other, their
//! bounds, and when it is told. Refuses: what proves that they belong together (`evidence`), and counting an exchange of a
//! gateway as a request: the engine's is the one.

mod digest;
mod evidence;
mod part;

pub use part::{GatewayExchange, GatewayOutcome, GatewayPart, Joined, JoinedBy, JoinedTrace};

pub(crate) use digest::Digest;
pub(crate) use evidence::{Asked, Served};

use crate::{Nanos, Observation};
use evidence::{Choice, Key, choose, overlap};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

/// Exchanges of gateways, and requests of engines, known at once. The oldest are told as they are past that.
const MOST: usize = 8192;
/// How long what has ended waits for its other half: the engine's end may be seen after the gateway's.
const GRACE_NS: Nanos = 5_000_000_000;
/// Of so many that share a key, none is told from the others.
const MOST_ALIKE: usize = 64;

/// What joins the exchanges of gateways with the requests of engines.
#[derive(Debug, Default)]
pub(crate) struct Gateways {
    known: BTreeSet<Arc<str>>,
    served: Side<Served>,
    asked: Side<Asked>,
    evicted: u64,
}

/// What is known on one side, by id and by key.
#[derive(Debug)]
struct Side<T> {
    by_id: HashMap<u64, T>,
    by_key: HashMap<Key, Vec<u64>>,
    /// As they began to wait, oldest first; some may be gone.
    order: VecDeque<(Nanos, u64)>,
}

impl<T> Default for Side<T> {
    fn default() -> Side<T> {
        Side {
            by_id: HashMap::new(),
            by_key: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Side<T> {
    fn index(&mut self, id: u64, keys: impl Iterator<Item = Key>) {
        for key in keys {
            let ids = self.by_key.entry(key).or_default();
            if ids.len() < MOST_ALIKE && !ids.contains(&id) {
                ids.push(id);
            }
        }
    }

    fn unindex(&mut self, id: u64, keys: impl Iterator<Item = Key>) {
        for key in keys {
            if let Some(ids) = self.by_key.get_mut(&key) {
                ids.retain(|known| *known != id);
                if ids.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }

    /// Those with one of these keys, each once.
    fn with_keys(&self, keys: impl Iterator<Item = Key>) -> Vec<u64> {
        let mut found: Vec<u64> = Vec::new();
        for id in keys.filter_map(|key| self.by_key.get(&key)).flatten() {
            if !found.contains(id) {
                found.push(*id);
            }
        }
        found
    }
}

impl Gateways {
    /// A gateway was found.
    pub(crate) fn up(&mut self, id: &Arc<str>) {
        if self.known.len() < MOST {
            self.known.insert(Arc::clone(id));
        }
    }

    /// A gateway is gone. What it served is told when it is due.
    pub(crate) fn down(&mut self, id: &str) {
        self.known.remove(id);
    }

    /// Whether there is any gateway; without, nothing is kept.
    pub(crate) fn any(&self) -> bool {
        !self.known.is_empty()
    }

    /// State that was given up since this was last asked.
    pub(crate) fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    /// Bytes of state, about.
    pub(crate) fn bytes(&self) -> usize {
        let keys = self.served.by_key.len() + self.asked.by_key.len();
        self.served.by_id.len() * (size_of::<Served>() + 512)
            + self.asked.by_id.len() * (size_of::<Asked>() + 256)
            + keys * 96
    }

    /// A client's request began to reach a gateway.
    pub(crate) fn opened(&mut self, at: Nanos, served: Served, out: &mut Vec<Observation>) {
        while self.served.by_id.len() >= MOST {
            let Some((_, oldest)) = self.served.order.pop_front() else {
                break;
            };
            self.evicted += u64::from(self.served.by_id.contains_key(&oldest));
            self.settle(oldest, out);
        }
        let id = served.id;
        // The same id twice: a clock went back.
        self.settle(id, out);
        self.served.index(id, served.keys());
        self.served.by_id.insert(id, served);
        self.served.order.push_back((at, id));
    }

    /// The whole body of a request to a gateway was read.
    pub(crate) fn read(&mut self, id: u64, digest: Option<u64>) {
        if let Some(served) = self.served.by_id.get_mut(&id) {
            served.digest = digest;
            let keys: Vec<Key> = served.keys().collect();
            self.served.index(id, keys.into_iter());
        }
    }

    /// An exchange of a gateway has ended.
    pub(crate) fn ended(
        &mut self,
        id: u64,
        at: Nanos,
        exchange: GatewayExchange,
        out: &mut Vec<Observation>,
    ) {
        if !self.served.by_id.contains_key(&id) {
            // It was given up, or its beginning was not seen.
            self.opened(at, Served::of_exchange(id, &exchange), out);
        }
        let Some(served) = self.served.by_id.get_mut(&id) else {
            return;
        };
        served.end(at, exchange);
        let keys: Vec<Key> = served.keys().collect();
        self.served.index(id, keys.iter().cloned());
        self.served.order.push_back((at, id));
        let waiting = self.asked.with_keys(keys.into_iter());
        self.join(&waiting, out);
    }

    /// A request of an engine has ended.
    pub(crate) fn asked(&mut self, at: Nanos, asked: Asked, out: &mut Vec<Observation>) {
        if self.served.by_id.is_empty() {
            return;
        }
        while self.asked.by_id.len() >= MOST {
            let Some((_, oldest)) = self.asked.order.pop_front() else {
                break;
            };
            self.evicted += u64::from(self.forget(oldest).is_some());
        }
        let id = asked.id;
        self.forget(id);
        let keys: Vec<Key> = asked.keys().collect();
        self.asked.index(id, keys.iter().cloned());
        self.asked.by_id.insert(id, asked);
        self.asked.order.push_back((at, id));
        // Others that wait for the same exchange may be joined or not by this one.
        let mut waiting = self.asked.with_keys(keys.into_iter());
        if !waiting.contains(&id) {
            waiting.push(id);
        }
        self.join(&waiting, out);
    }

    /// Time has passed.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        let due = |order: &mut VecDeque<(Nanos, u64)>| {
            let is_due = |(at, _): &(Nanos, u64)| at.saturating_add(GRACE_NS) <= now;
            order.pop_front_if(|entry| is_due(entry))
        };
        let mut again = Vec::new();
        while let Some((at, id)) = due(&mut self.served.order) {
            match self.served.by_id.get(&id).map(Served::ended_at) {
                // One that ended later is here once more.
                Some(Some(ended)) if ended <= at => self.settle(id, out),
                Some(None) => again.push((now, id)),
                _ => {}
            }
        }
        self.served.order.extend(again.drain(..));
        while let Some((_, id)) = due(&mut self.asked.order) {
            if self.waits_for_open(id) {
                again.push((now, id));
            } else {
                self.forget(id);
            }
        }
        self.asked.order.extend(again);
    }

    /// Nothing more will come.
    pub(crate) fn finish(&mut self, out: &mut Vec<Observation>) {
        self.advance(Nanos::MAX, out);
    }

    /// Whether an exchange of a gateway that is still open may turn out to be this request's.
    fn waits_for_open(&self, id: u64) -> bool {
        let Some(asked) = self.asked.by_id.get(&id) else {
            return false;
        };
        let candidates = self.served.with_keys(asked.keys());
        let mut candidates = candidates.iter().filter_map(|id| self.served.by_id.get(id));
        candidates.any(|served| served.ended_at().is_none())
    }

    fn forget(&mut self, id: u64) -> Option<Asked> {
        let asked = self.asked.by_id.remove(&id)?;
        self.asked.unindex(id, asked.keys());
        Some(asked)
    }

    /// Tells an exchange of a gateway, if it has ended, and forgets it.
    fn settle(&mut self, id: u64, out: &mut Vec<Observation>) {
        if let Some(served) = self.served.by_id.remove(&id) {
            self.served.unindex(id, served.keys());
            out.extend(
                served
                    .settled()
                    .map(|exchange| Observation::Gateway(Box::new(exchange))),
            );
        }
    }

    /// Joins those of these requests of which it is certain by now whose they are.
    fn join(&mut self, waiting: &[u64], out: &mut Vec<Observation>) {
        // Which exchange of a gateway each is for; of what only its content says, several may claim to be for the same.
        let mut chosen: Vec<(u64, u64, JoinedBy)> = Vec::new();
        for &id in waiting {
            let Some(asked) = self.asked.by_id.get(&id) else {
                continue;
            };
            let candidates = self.served.with_keys(asked.keys());
            let candidates: Vec<&Served> = candidates
                .iter()
                .filter_map(|id| self.served.by_id.get(id))
                .collect();
            match choose(asked, &candidates) {
                Choice::None => {}
                Choice::Ambiguous(of) => {
                    for id in of {
                        self.mark_ambiguous(id);
                    }
                }
                Choice::One(served, by) => chosen.push((id, served, by)),
            }
        }
        // The strongest evidence first: what is left for the weaker must not contradict it.
        chosen.sort_by_key(|(_, _, by)| *by);
        let claims = chosen.clone();
        for (id, of, by) in chosen {
            let Some((asked, served)) = self.asked.by_id.get(&id).zip(self.served.by_id.get(&of)) else {
                continue;
            };
            if served.ended_at().is_none() {
                continue;
            }
            let rivals = claims.iter().filter(|claim| claim.0 != id && claim.1 == of);
            let mut rivals = rivals.filter_map(|claim| self.asked.by_id.get(&claim.0));
            let contested = served.is_taken_while(asked)
                || rivals.any(|rival| overlap(rival.interval(), asked.interval()));
            let weak = by == JoinedBy::Content || (by == JoinedBy::Trace && served.answers_otherwise(asked));
            if weak && contested {
                self.mark_ambiguous(of);
                continue;
            }
            // Both are there: they were looked at above.
            let Some((asked, served)) = self.forget(id).zip(self.served.by_id.get_mut(&of)) else {
                continue;
            };
            served.take(&asked);
            out.push(Observation::Joined(Box::new(served.part(&asked, by))));
        }
    }

    fn mark_ambiguous(&mut self, id: u64) {
        if let Some(served) = self.served.by_id.get_mut(&id) {
            served.ambiguous = true;
        }
    }
}
