//! Control groups: where the folder of a process's group is, and what its memory files hold.
//!
//! Owns: mounts, paths across namespaces (`place`), the files of both versions (`files`). Refuses: which processes belong
//! together (`memory`), and what the numbers mean (the core's).

mod files;
mod mounts;
mod place;

pub use files::{group, stalls};
pub use mounts::{Hierarchies, Hierarchy};
pub use place::{GroupPath, groups_of};
