//! The pure core of infertap: events in, observations out.
//!
//! Owns: connections, exchanges, protocols, timelines, token counts: everything that turns bytes with timestamps into
//! facts about requests. Refuses: files, sockets, clocks and threads. Time arrives with each event, so a live run, a
//! replayed recording and a fuzz case are one code path, and the same events always give the same observations.
//!
//! ```
//! use infertap_core::{Event, Pipeline, PipelineConfig};
//!
//! let mut pipeline = Pipeline::new(PipelineConfig::default());
//! let mut observations = Vec::new();
//! pipeline.handle(Event::process_exit(1_000, 4242), &mut observations);
//! pipeline.advance(2_000, &mut observations);
//! assert!(observations.is_empty());
//! ```

pub mod budget;
pub mod capacity;
pub mod chrome_trace;
pub mod client;
mod connection;
pub mod content;
mod context;
pub mod count;
pub mod diagnose;
pub mod engine;
mod engines;
pub mod estimate;
pub mod event;
mod exchange;
pub mod gateway;
pub mod gguf;
pub mod gpu;
mod identity;
mod infer;
mod inside;
pub mod ledger;
mod link;
mod lru;
pub mod money;
pub mod observation;
mod pairing;
pub mod pipeline;
pub mod pods;
pub mod prefix;
pub mod pressure;
pub mod protocol;
pub mod redact;
pub mod request;
pub mod sampling;
pub mod scene;
mod slots;
mod status;
mod timeline;
mod tokenize;
mod tokens;
mod trace;
pub mod wire;

pub use count::{Content, CountJob, CountOutcome, Counted};
pub use diagnose::{Blamed, Cause, Diagnosis, DiagnosisConfig};
pub use engine::{EngineInfo, EngineKind};
pub use engines::Engines;
pub use event::{Event, EventKind};
pub use money::{Money, PriceBook};
pub use observation::{Anomaly, Observation};
pub use pipeline::{Pipeline, PipelineConfig, PipelineStats};
pub use prefix::PrefixConfig;
pub use pressure::PressureConfig;
pub use request::{RequestRecord, Source, Status};
pub use scene::SceneRules;
pub use trace::TraceSource;

/// CLOCK_MONOTONIC nanoseconds, as `bpf_ktime_get_ns` gives them.
pub type Nanos = u64;
