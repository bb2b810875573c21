//! What the start of a message of SGLang's looks like, in the middle of a stream.
//!
//! Owns: telling starts from anything else, in both encodings. Refuses: reading on.

use crate::wire::zmtp::Start;

/// A pickle's first value: the module of what makes the object.
const MODULES: [&[u8]; 2] = [b"msgspec._utils", b"sglang.srt.managers.io_struct"];
/// How the names of message classes end.
const CLASSES: [&[u8]; 3] = [b"Input", b"Output", b"Req"];

/// Each message has one part.
pub(super) fn start(more: bool, len: u64, following: &[u8]) -> Start {
    if more || len < 8 {
        return Start::No;
    }
    match following.first() {
        None => Start::Unsure,
        Some(0x80) => pickle(following),
        Some(_) => tagged(following),
    }
}

/// Protocol, frame, and the module as a short string.
fn pickle(bytes: &[u8]) -> Start {
    match bytes.get(1) {
        None => return Start::Unsure,
        Some(4..=5) => {}
        Some(_) => return Start::No,
    }
    let mut judged = Start::No;
    for module in MODULES {
        // Everything but the frame's length, which may be anything.
        let head: [(usize, &[u8]); 2] = [(2, &[0x95]), (11, &[0x8c, module.len() as u8])];
        let parts = head.into_iter().chain([(13, module)]);
        let mut fits = Start::Yes;
        for (at, expected) in parts {
            let here = bytes.get(at..).unwrap_or_default();
            let here = &here[..here.len().min(expected.len())];
            if !expected.starts_with(here) {
                fits = Start::No;
                break;
            }
            if here.len() < expected.len() {
                fits = Start::Unsure;
            }
        }
        match fits {
            Start::Yes => return Start::Yes,
            Start::Unsure => judged = Start::Unsure,
            Start::No => {}
        }
    }
    judged
}

/// An array whose first value is the name of a class.
fn tagged(bytes: &[u8]) -> Start {
    let name = match bytes {
        [0x91..=0x9f, rest @ ..] | [0xdc, _, _, rest @ ..] => rest,
        [0xdc, ..] => return Start::Unsure,
        _ => return Start::No,
    };
    let (len, name) = match name {
        [] | [0xd9] => return Start::Unsure,
        [len @ 0xa4..=0xbf, name @ ..] => (usize::from(len & 0x1f), name),
        [0xd9, len @ 32..=64, name @ ..] => (usize::from(*len), name),
        _ => return Start::No,
    };
    let here = &name[..name.len().min(len)];
    let letters =
        here.iter().all(u8::is_ascii_alphanumeric) && here.first().is_none_or(u8::is_ascii_uppercase);
    if !letters {
        Start::No
    } else if here.len() < len {
        Start::Unsure
    } else if CLASSES.iter().any(|end| here.ends_with(end)) {
        Start::Yes
    } else {
        Start::No
    }
}
