//! What works on this host, what does not, and what to do about it.
