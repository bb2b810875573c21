//! Request records at the edge: which are kept, by configuration; keeping them in the store; showing them.
//!
//! Owns: the section, the commands. Refuses: the rules (the core's `sampling`) and the table (the store's).

mod command;
mod config;
mod early;
mod follow;
#[cfg(test)]
mod found_tests;
#[cfg(test)]
mod gateway_tests;
mod gpu;
#[cfg(test)]
mod gpu_tests;
mod keeper;
#[cfg(test)]
mod kill_tests;
#[cfg(test)]
mod query_tests;
mod settle;
mod show;
#[cfg(test)]
mod tests;

pub use command::requests_command;
pub use config::RecordsConfig;
pub use gpu::GpuDuring;
pub(crate) use keeper::Found;
pub use keeper::Records;
pub use show::show_command;
