//! The daemon and command line of infertap: all I/O lives here; the meaning of what is read lives in `infertap-core`.

mod api;
pub mod budget;
pub mod cli;
mod clock;
pub mod config;
pub mod content;
pub mod count;
pub mod discover;
pub mod doctor;
pub mod export;
pub mod pods;
pub mod prefix;
mod print;
pub mod probe;
pub mod recording;
pub mod records;
pub mod run;
pub mod sampler;
pub mod ship;
pub mod store;
pub mod trace;
pub mod usage;
