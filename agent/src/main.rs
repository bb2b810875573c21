//! `infertap`: parse, run, exit code.

fn main() {}
