//! The daemon and command line of infertap: all I/O lives here; the meaning of what is read lives in `infertap-core`.
