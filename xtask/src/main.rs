//! Developer commands of infertap.
fn main() {}
