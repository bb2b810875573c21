//! procfs: which processes are engines.
