//! Meaning: what the bytes of an exchange say about an inference request. One file a protocol.
//!
//! Owns: the trait, the registry. Refuses: framing (`wire`), time (`timeline`), who serves (`engine`).
