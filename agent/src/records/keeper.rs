//! Keeping records while the agent runs.
//!
//! Owns: asking the core which, giving them to the store and to the outlets, having old ones dropped. Refuses: writing (the
//! store's thread does, in batches) and waiting: what the store or an outlet has no room for is lost, and counted there.

use super::RecordsConfig;
use super::early::Early;
use super::gpu::{self, GpuHistory};
use super::settle::Settling;
use crate::clock::{monotonic_ns, unix_ms};
use crate::content::{ContentConfig, Contents};
use crate::export::gpus::Gpus;
use crate::export::metrics::{Metrics, Traces, lock};
use crate::ship::Outlets;
use crate::store::Store;
use crate::store::tables::record::{Amend, Energy, KeptRecord, Retain};
use infertap_core::gateway::Joined;
use infertap_core::gpu::GpuShare;
use infertap_core::observation::Finished;
use infertap_core::sampling::{Rule, Rules, Sampler};
use infertap_core::{Observation, TraceSource};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How often old records are dropped.
const RETAIN: Duration = Duration::from_mins(1);
/// Records whose energy may still come.
const AWAITED: usize = 512;

/// The records of a running agent. All methods take `&self` and may be called from any thread.
#[derive(Debug, Default)]
pub struct Records {
    /// Empty where none are kept.
    active: OnceLock<Active>,
    gpus: Mutex<GpuHistory>,
    content: Contents,
}

#[derive(Debug)]
struct Active {
    /// Where there is one.
    store: Option<Weak<Store>>,
    outlets: Arc<Outlets>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sampler: Sampler,
    keep: Duration,
    bytes: u64,
    /// Ids of what was kept, the oldest first.
    awaited: VecDeque<String>,
    /// Parts of gateways, and what they may belong to.
    early: Early,
    /// What goes to the outlets soon.
    settling: Settling,
    retained: Option<Instant>,
}

/// Rules that requests of one batch of observations match, by what others know of them.
#[derive(Debug, Default)]
pub(crate) struct Found(Vec<(u64, Rule)>);

impl Found {
    /// The request of this [`Finished::id`] matches it.
    pub(crate) fn add(&mut self, id: u64, rule: Rule) {
        self.0.push((id, rule));
    }

    fn of(&self, id: u64) -> Rules {
        let of = self.0.iter().filter(|(of, _)| *of == id);
        of.map(|(_, rule)| *rule).collect()
    }
}

impl Records {
    /// Keeps records in this store, where there is one, and sends them to these outlets, from here on. Once.
    pub fn keep(
        &self,
        store: Option<&Arc<Store>>,
        outlets: Arc<Outlets>,
        config: &RecordsConfig,
        metrics: &Metrics,
    ) {
        if store.is_some() || !outlets.is_empty() {
            metrics.records_begin();
        }
        if let Some(store) = store {
            self.content.beside(store.path());
        }
        let _ = self.active.set(Active {
            store: store.map(Arc::downgrade),
            outlets,
            state: Mutex::new(State {
                sampler: Sampler::new(config.sampling()),
                keep: config.keep.duration(),
                bytes: config.max_bytes.get(),
                awaited: VecDeque::new(),
                early: Early::default(),
                settling: Settling::default(),
                retained: None,
            }),
        });
    }

    /// As [`Records::keep`], in this store alone.
    pub fn keep_in(&self, store: &Arc<Store>, config: &RecordsConfig, metrics: &Metrics) {
        self.keep(Some(store), Arc::default(), config, metrics);
    }

    /// Other rules and bounds from here on, where records are kept.
    pub fn configure(&self, config: &RecordsConfig) {
        let Some(active) = self.active.get() else {
            return;
        };
        let mut state = lock(&active.state);
        state.sampler.configure(config.sampling());
        state.keep = config.keep.duration();
        state.bytes = config.max_bytes.get();
        state.retained = None;
    }

    /// Decides on the requests that ended, and keeps those that are worth it; these can be looked up by their traces.
    /// `found` are the rules that others found requests to match. `gateways`: some are watched, and what they are asked may
    /// yet name a request's trace.
    pub(crate) fn apply(
        &self,
        observations: &[Observation],
        found: &Found,
        gateways: bool,
        metrics: &Metrics,
    ) -> Traces {
        // Destinations may come while the agent runs.
        let Some(active) = self.active.get().filter(|active| active.keeps()) else {
            return Traces::Any;
        };
        let store = active.store();
        let mut traces = Vec::new();
        let mut state = None;
        for observation in observations {
            match observation {
                Observation::Finished(finished) => {
                    let state = state.get_or_insert_with(|| lock(&active.state));
                    let decision = state
                        .sampler
                        .decide(monotonic_ns(), finished, found.of(finished.id));
                    metrics.record_decided(decision);
                    if decision.kept() {
                        let energy_comes = finished.record.energy_j.is_none();
                        let mut kept = self.kept(finished, decision.matched.iter());
                        let joined = state.early.kept(finished.id);
                        if let Some(joined) = &joined {
                            kept.join(joined);
                        }
                        let made_up = finished.record.trace_source == TraceSource::Derived;
                        // Else nobody finds it by the trace that the exemplar would name.
                        let lasts = if joined.is_some() {
                            kept.record.trace_id == finished.record.trace_id
                        } else {
                            !(gateways && made_up)
                        };
                        let content = kept.content.clone();
                        let sent = active.send_soon(state, &kept);
                        let stored = store.as_ref().is_some_and(|store| store.submit(kept));
                        if sent || stored {
                            if lasts {
                                traces.push(finished.id);
                            }
                            self.await_gpus(finished);
                            if let Some(content) = content {
                                self.content.make_soon(&content);
                            }
                        }
                        if stored && energy_comes {
                            if state.awaited.len() >= AWAITED {
                                state.awaited.pop_front();
                            }
                            state.awaited.push_back(finished.record.id.clone());
                        }
                    }
                }
                Observation::Gpu(GpuShare::Whole { id, joules }) => {
                    let state = state.get_or_insert_with(|| lock(&active.state));
                    state
                        .settling
                        .amend(id, |kept| kept.record.energy_j = Some(*joules));
                    if let Some(at) = state.awaited.iter().position(|awaited| awaited == id)
                        && let Some(store) = &store
                    {
                        state.awaited.remove(at);
                        store.submit(Energy {
                            id: id.clone(),
                            joules: *joules,
                        });
                    }
                }
                Observation::Joined(joined) => {
                    let state = state.get_or_insert_with(|| lock(&active.state));
                    if state.early.came(joined) {
                        let id = format!("{:016x}", joined.request);
                        state.settling.amend(&id, |kept| kept.join(joined));
                        if let Some(store) = &store {
                            let joined = Joined::clone(joined);
                            store.submit(Amend {
                                id,
                                change: Box::new(move |kept| kept.join(&joined)),
                            });
                        }
                    }
                }
                _ => {}
            }
        }
        Traces::Of(traces)
    }

    /// What is known of its engine's GPUs comes with their next reading.
    fn await_gpus(&self, finished: &Finished) {
        let record = &finished.record;
        if let Some(begin) = record.t0_ns {
            lock(&self.gpus).ended(gpu::Kept {
                id: record.id.clone(),
                engine: Arc::clone(&record.engine),
                begin,
                end: record.t4_ns.unwrap_or_else(monotonic_ns),
            });
        }
    }

    /// All GPUs were read.
    pub(crate) fn gpus_read(&self, gpus: &Gpus) {
        let Some(active) = self.active.get() else {
            return;
        };
        let told = lock(&self.gpus).read(gpus, monotonic_ns());
        for (id, during) in told {
            let settling = &mut lock(&active.state).settling;
            settling.amend(&id, |kept| kept.gpu.clone_from(&during));
            if let Some(store) = active.store() {
                store.submit(Amend {
                    id,
                    change: Box::new(move |kept| kept.gpu.clone_from(&during)),
                });
            }
        }
    }

    /// Sends what has waited long enough, and has old records dropped once a minute. To be called every few seconds.
    pub fn advance(&self) {
        let Some(active) = self.active.get() else {
            return;
        };
        let mut state = lock(&active.state);
        for kept in state.settling.due(Instant::now()) {
            active.outlets.offer(&kept);
        }
        if let Some(store) = active.store()
            && state.retained.is_none_or(|last| last.elapsed() >= RETAIN)
        {
            state.retained = Some(Instant::now());
            let since = u128::from(unix_ms()).saturating_sub(state.keep.as_millis());
            store.submit(Retain {
                since_ms: i64::try_from(since).unwrap_or(i64::MAX),
                bytes: state.bytes,
            });
        }
    }

    /// Hands all that waits to the outlets: no more observations come.
    pub fn settle(&self) {
        if let Some(active) = self.active.get() {
            for kept in lock(&active.state).settling.all() {
                active.outlets.offer(&kept);
            }
        }
    }

    /// Keeps of prompts and answers what this section says, from here on.
    pub(crate) fn configure_content(&self, config: &ContentConfig, metrics: &Metrics) {
        self.content.configure(config, metrics);
    }

    fn kept(&self, finished: &Finished, rules: impl Iterator<Item = Rule>) -> KeptRecord {
        KeptRecord {
            record: finished.record.clone(),
            ended_unix_ms: i64::try_from(unix_ms()).unwrap_or(i64::MAX),
            rules: rules.map(|rule| rule.as_str().to_owned()).collect(),
            token_gaps_from_ns: finished.gaps_from,
            token_gaps: finished.gaps.clone(),
            content: self.content.of(finished),
            gpu: Vec::new(),
            gateway: None,
        }
    }
}

impl Active {
    /// There is somewhere to keep records.
    fn keeps(&self) -> bool {
        self.store.is_some() || !self.outlets.is_empty()
    }

    fn store(&self) -> Option<Arc<Store>> {
        self.store.as_ref()?.upgrade()
    }

    /// Has a record sent once it has settled; whether there is anybody to send it to.
    fn send_soon(&self, state: &mut State, kept: &KeptRecord) -> bool {
        if self.outlets.is_empty() {
            return false;
        }
        for early in state.settling.push(Instant::now(), kept.clone()) {
            self.outlets.offer(&early);
        }
        true
    }
}
