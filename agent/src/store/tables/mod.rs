//! The tables of the store, one file each: what is in a row, how it is written and read.
//!
//! Owns: nothing but their list. Refuses: transactions and threads (the store's).

pub mod budget;
pub mod record;
pub mod usage;
