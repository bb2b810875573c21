//! The kernel side: aya lives only here.
