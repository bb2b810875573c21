//! The requests that ended lately, in memory.
//!
//! Owns: a ring bounded in number and in bytes, and the gateways' parts of what is in it. Refuses: content (records have none) and anything that must survive a
//! restart (the store's).

use crate::export::metrics::lock;
use infertap_core::gateway::{GatewayPart, Joined};
use infertap_core::{Blamed, Nanos, RequestRecord, Status};
use serde::Serialize;
use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex},
};

/// Bytes that each record may take on average; what clients and servers put into a record decides its size, so the
/// number alone would not bound the memory.
const BYTES_PER_RECORD: usize = 2048;
/// Parts of gateways that came before their request was told as ended: so many at most, the oldest go first.
const MOST_EARLY: usize = 1024;

/// A request that ended, as `/api/v1/requests` tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecentRequest {
    /// The record.
    #[serde(flatten)]
    pub record: RequestRecord,
    /// The gateway that it came by way of, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayPart>,
}

impl RecentRequest {
    fn join(&mut self, joined: &Joined) {
        self.gateway = Some(joined.part.clone());
        joined.name_trace(&mut self.record);
    }

    fn bytes(&self) -> usize {
        let gateway = self.gateway.as_ref();
        let name = |part: &GatewayPart| part.id.len() + part.name.len();
        size_of::<Option<GatewayPart>>() + bytes(&self.record) + gateway.map_or(0, name)
    }
}

/// The ring.
#[derive(Debug)]
pub struct Recent {
    capacity: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    /// Oldest first.
    records: VecDeque<Arc<RecentRequest>>,
    bytes: usize,
    /// Parts of gateways whose request is not there.
    early: VecDeque<(String, Joined)>,
    /// When the latest of those that made room had ended.
    forgotten: Option<Nanos>,
}

/// Which requests are asked for; `None` is any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Engine id.
    pub engine: Option<String>,
    /// Served model.
    pub model: Option<String>,
    /// Scene.
    pub scene: Option<String>,
    /// How it ended.
    pub status: Option<Status>,
}

impl Filter {
    fn admits(&self, record: &RequestRecord) -> bool {
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        is(&self.engine, &record.engine)
            && is(&self.model, &record.model)
            && is(&self.scene, &record.scene)
            && self.status.is_none_or(|status| status == record.status)
    }
}

/// What is known since some time; oldest first.
#[derive(Debug)]
pub struct Since {
    /// What was asked for.
    pub requests: Vec<Arc<RecentRequest>>,
    /// Those of them that came by way of a gateway, and all others that were for the same exchanges: a gateway may have
    /// tried another engine before.
    pub by_gateway: Vec<Arc<RecentRequest>>,
    /// Until when some are forgotten.
    pub forgotten: Option<Nanos>,
}

impl Recent {
    /// A ring of `capacity` records, and about 2 KiB for each. With 0 nothing is kept.
    pub fn new(capacity: usize) -> Recent {
        Recent {
            capacity,
            ring: Mutex::default(),
        }
    }

    /// Adds a record; the oldest make room for it.
    pub fn push(&self, record: &RequestRecord) {
        let budget = self.capacity.saturating_mul(BYTES_PER_RECORD);
        let mut ring = lock(&self.ring);
        let mut request = RecentRequest {
            record: record.clone(),
            gateway: None,
        };
        // Mostly one of the last.
        if let Some(at) = ring.early.iter().rposition(|(id, _)| *id == record.id)
            && let Some((_, joined)) = ring.early.remove(at)
        {
            request.join(&joined);
        }
        let size = request.bytes();
        if size > budget {
            ring.forgotten = ring.forgotten.max(ended(record));
            return;
        }
        while ring.records.len() >= self.capacity || ring.bytes + size > budget {
            let Some(oldest) = ring.records.pop_front() else {
                break;
            };
            ring.bytes -= oldest.bytes();
            ring.forgotten = ring.forgotten.max(ended(&oldest.record));
        }
        ring.bytes += size;
        ring.records.push_back(Arc::new(request));
    }

    /// A gateway's part of a request that has ended, or is told soon.
    pub fn join(&self, joined: &Joined) {
        if self.capacity == 0 {
            return;
        }
        let id = format!("{:016x}", joined.request);
        let mut ring = lock(&self.ring);
        let ring = &mut *ring;
        if let Some(request) = ring
            .records
            .iter_mut()
            .rev()
            .find(|request| request.record.id == id)
        {
            let request = Arc::make_mut(request);
            let before = request.bytes();
            request.join(joined);
            ring.bytes = ring.bytes - before + request.bytes();
            return;
        }
        if ring.early.len() >= MOST_EARLY {
            ring.early.pop_front();
        }
        ring.early.push_back((id, joined.clone()));
    }

    /// All energy of a request that ended a while ago is known now, joules.
    pub fn energy(&self, id: &str, joules: f64) {
        let mut ring = lock(&self.ring);
        if let Some(record) = ring
            .records
            .iter_mut()
            .rev()
            .find(|request| request.record.id == id)
        {
            Arc::make_mut(record).record.energy_j = Some(joules);
        }
    }

    /// Records of requests of an engine, or of all, that ended at `from` or later.
    pub fn since(&self, from: Nanos, engine: Option<&str>) -> Since {
        let ring = lock(&self.ring);
        let requests: Vec<Arc<RecentRequest>> = ring
            .records
            .iter()
            .filter(|request| engine.is_none_or(|engine| engine == &*request.record.engine))
            .filter(|request| ended(&request.record).is_some_and(|at| at >= from))
            .cloned()
            .collect();
        let exchange = |request: &RecentRequest| {
            let part = request.gateway.as_ref()?;
            Some((Arc::clone(&part.name), part.id.clone()))
        };
        let exchanges: HashSet<_> = requests.iter().filter_map(|request| exchange(request)).collect();
        let by_gateway = ring
            .records
            .iter()
            .filter(|request| exchange(request).is_some_and(|id| exchanges.contains(&id)))
            .cloned()
            .collect();
        Since {
            requests,
            by_gateway,
            forgotten: ring.forgotten,
        }
    }

    /// The newest `limit` records that `filter` admits, newest first.
    pub fn newest(&self, limit: usize, filter: &Filter) -> Vec<Arc<RecentRequest>> {
        let ring = lock(&self.ring);
        ring.records
            .iter()
            .rev()
            .filter(|request| filter.admits(&request.record))
            .take(limit)
            .cloned()
            .collect()
    }
}

/// The last thing that is known of a request.
fn ended(record: &RequestRecord) -> Option<Nanos> {
    let points = [
        record.t0_ns,
        record.t1_ns,
        record.t2_ns,
        record.t3_ns,
        record.t4_ns,
    ];
    points.into_iter().flatten().max()
}

/// About what a record takes.
fn bytes(record: &RequestRecord) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    // Requests of one pod share them; each may be the last that holds them.
    let client = [
        &record.client_namespace,
        &record.client_pod,
        &record.client_workload,
        &record.client_workload_kind,
    ];
    size_of::<RequestRecord>()
        + record.id.len()
        + record.trace_id.len()
        + optional(&record.parent_span_id)
        + optional(&record.response_id)
        + record.engine.len()
        + record.model.len()
        + record.scene.len()
        + record.protocol.len()
        + optional(&record.finish_reason)
        + client.into_iter().flatten().map(|text| text.len()).sum::<usize>()
        + record
            .incomplete
            .iter()
            .map(|reason| size_of::<String>() + reason.len())
            .sum::<usize>()
        + record.diagnosis.as_ref().map_or(0, |diagnosis| {
            let blamed = &diagnosis.interference_by;
            let text = |blamed: &Blamed| {
                optional(&blamed.id) + optional(&blamed.response_id) + optional(&blamed.trace_id)
            };
            blamed.capacity() * size_of::<Blamed>() + blamed.iter().map(text).sum::<usize>()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::metrics::gateway_tests::joined;
    use crate::export::metrics::tests::{labels, record};

    fn with_id(id: &str, model: &str, status: Status) -> RequestRecord {
        let mut record = record(&labels("e", model, "s"), status);
        record.id = id.into();
        record
    }

    fn ids(recent: &Recent, limit: usize, filter: &Filter) -> Vec<String> {
        recent
            .newest(limit, filter)
            .iter()
            .map(|request| request.record.id.clone())
            .collect()
    }

    #[test]
    fn newest_first_and_never_more_than_the_capacity() {
        let recent = Recent::new(3);
        for i in 0..10 {
            recent.push(&with_id(&i.to_string(), "m", Status::Ok));
        }
        assert_eq!(ids(&recent, 100, &Filter::default()), ["9", "8", "7"]);
        assert_eq!(ids(&recent, 2, &Filter::default()), ["9", "8"]);
        let none = Recent::new(0);
        none.push(&with_id("1", "m", Status::Ok));
        assert_eq!(ids(&none, 100, &Filter::default()), [""; 0]);
    }

    #[test]
    fn what_ended_lately_is_told_and_until_when_it_is_not_all() {
        let recent = Recent::new(3);
        for (id, end) in [("1", 10), ("2", 30), ("3", 20), ("4", 40)] {
            let mut record = with_id(id, "m", Status::Ok);
            (record.t3_ns, record.t4_ns) = (None, Some(end));
            (record.t0_ns, record.t1_ns, record.t2_ns) = (Some(1), None, None);
            recent.push(&record);
        }
        let since = |from, engine| {
            let Since {
                requests: records,
                forgotten,
                ..
            } = recent.since(from, engine);
            let ids: Vec<String> = records.iter().map(|request| request.record.id.clone()).collect();
            (ids.join(" "), forgotten)
        };
        assert_eq!(since(30, None), ("2 4".to_owned(), Some(10)));
        assert_eq!(since(0, Some("e")), ("2 3 4".to_owned(), Some(10)));
        assert_eq!(since(0, Some("other")), (String::new(), Some(10)));
    }

    #[test]
    fn energy_is_added_to_the_record_that_is_still_there() {
        let recent = Recent::new(2);
        for id in ["1", "2", "3"] {
            recent.push(&with_id(id, "m", Status::Ok));
        }
        recent.energy("1", 5.0);
        recent.energy("2", 7.5);
        let kept = recent.newest(9, &Filter::default());
        let energies: Vec<Option<f64>> = kept.iter().map(|request| request.record.energy_j).collect();
        assert_eq!(energies, [None, Some(7.5)]);
    }

    #[test]
    fn a_gateway_s_part_comes_before_or_after_its_request() {
        let recent = Recent::new(4);
        let id = |n: u64| format!("{n:016x}");
        recent.push(&with_id(&id(1), "m", Status::Ok));
        for request in 1..=3 {
            recent.join(&joined(request));
        }
        recent.push(&with_id(&id(2), "m", Status::Ok));
        recent.push(&with_id(&id(4), "m", Status::Ok));
        let told: Vec<(String, bool)> = recent
            .newest(9, &Filter::default())
            .iter()
            .map(|request| (request.record.id.clone(), request.gateway.is_some()))
            .collect();
        assert_eq!(told, [(id(4), false), (id(2), true), (id(1), true)]);
        for request in 10..5000 {
            recent.join(&joined(request));
        }
        let ring = lock(&recent.ring);
        assert_eq!(ring.early.len(), MOST_EARLY);
        let bytes: usize = ring.records.iter().map(|request| request.bytes()).sum();
        assert_eq!(ring.bytes, bytes);
    }

    #[test]
    fn the_texts_of_the_client_count() {
        let mut with = with_id("1", "m", Status::Ok);
        let without = bytes(&with);
        for (text, len) in [
            (&mut with.client_namespace, 1),
            (&mut with.client_pod, 20),
            (&mut with.client_workload, 300),
            (&mut with.client_workload_kind, 4000),
        ] {
            *text = Some("x".repeat(len).into());
        }
        assert_eq!(bytes(&with), without + 4321);
    }

    #[test]
    fn the_limit_counts_what_the_filter_admits() {
        let recent = Recent::new(10);
        for (id, model, status) in [
            ("1", "a", Status::Ok),
            ("2", "b", Status::Ok),
            ("3", "a", Status::Cancelled),
            ("4", "b", Status::Cancelled),
        ] {
            recent.push(&with_id(id, model, status));
        }
        let filter = |model: Option<&str>, status| Filter {
            model: model.map(str::to_owned),
            status,
            ..Filter::default()
        };
        assert_eq!(ids(&recent, 1, &filter(Some("a"), None)), ["3"]);
        assert_eq!(ids(&recent, 9, &filter(Some("a"), None)), ["3", "1"]);
        assert_eq!(
            ids(&recent, 9, &filter(Some("b"), Some(Status::Cancelled))),
            ["4"]
        );
        assert_eq!(ids(&recent, 9, &filter(Some("c"), None)), [""; 0]);
    }

    #[test]
    fn large_records_push_out_more_than_one() {
        let recent = Recent::new(4);
        for i in 0..4 {
            recent.push(&with_id(&i.to_string(), "m", Status::Ok));
        }
        recent.push(&with_id("large", &"x".repeat(6000), Status::Ok));
        let kept = ids(&recent, 100, &Filter::default());
        assert_eq!(kept.first().map(String::as_str), Some("large"));
        assert!(kept.len() < 4, "{kept:?}");
        recent.push(&with_id("too large", &"x".repeat(10_000), Status::Ok));
        assert_eq!(ids(&recent, 100, &Filter::default()), kept);
    }
}
