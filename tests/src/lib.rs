//! What the live tests, the demo and the benchmarks share: scripted servers, load clients, engine set-up, comparison
//! of the agent's records with a client's own truth.

pub mod accuracy;
pub mod agent;
pub mod bpf_census;
pub mod bpf_stamp;
pub mod cgroup;
pub mod child;
pub mod clock;
pub mod compare;
pub mod deployed;
pub mod engines;
pub mod exposition;
pub mod gate;
pub mod gpu;
pub mod gpu_check;
pub mod http;
pub mod kernel;
pub mod load;
pub mod nginx;
pub mod prometheus;
pub mod promql;
pub mod receive;
pub mod scripted;
pub mod stats;
pub mod trace_event;
