//! Who used how much, when: the ledger of a running agent, and `infertap cost`.
//!
//! Owns: the configuration, the clock of the ledger, and printing what a running agent tells. Refuses: the sums (the
//! core's `ledger`), prices, and paths of the API (`export::http`).

mod command;
mod config;
mod keep;
mod shared;

pub(crate) use command::print_rows;
pub use command::{Question, cost_command};
pub use config::{ContextLimitConfig, UsageConfig};
pub use keep::Keeper;
pub use shared::SharedLedger;
