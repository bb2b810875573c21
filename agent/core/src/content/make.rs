//! From what was heard to what may be kept.
//!
//! Owns: hashing, redacting and cutting. Refuses: raw text in any mode but [`Mode::Full`], on any path: what can't be read is
//! absent.

use super::{Absent, Heard, Keep, Message, Mode, Part, PartKind, Side, Transcript};
use crate::{
    redact::{Counts, Redactor},
    scene::hex,
};
use sha2::{Digest as _, Sha256};

/// Bytes that each part costs beside its text, so that very many empty ones have a limit too.
const PART_COST: usize = 32;
/// Bytes of a role and of a tool's name.
const NAME: usize = 128;

/// What hashes are made with: who does not know it can't try what a prompt may have been.
#[derive(Clone, Copy)]
pub struct HashKey(pub [u8; 32]);

/// Never the key.
impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey")
    }
}

/// Makes of what was heard what is to be kept.
pub fn transcript(heard: &Heard, keep: Keep, redactor: &Redactor, key: &HashKey) -> Transcript {
    let mut counts = Counts::new();
    let input = match heard.lost_in {
        Some(why) => Side::absent(why),
        None => side(
            heard.protocol.prompt(&heard.request),
            keep,
            redactor,
            key,
            &mut counts,
        ),
    };
    let output = match heard.lost_out {
        Some(why) => Side::absent(why),
        None if heard.choices.is_empty() && heard.document.is_empty() => Side::default(),
        None => side(answer(heard), keep, redactor, key, &mut counts),
    };
    Transcript {
        mode: keep.mode,
        input,
        output,
        redactions: counts,
    }
}

/// The answer's messages, one a choice.
fn answer(heard: &Heard) -> Option<Vec<Message>> {
    if heard.choices.is_empty() {
        return heard.protocol.answer(&heard.document);
    }
    let part = |kind, content: &str| Part {
        kind,
        name: None,
        content: content.to_owned(),
    };
    let message = |choice: &super::heard::Choice| {
        let texts = [
            (PartKind::Reasoning, &choice.reasoning),
            (PartKind::Text, &choice.text),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        let calls = choice.calls.iter().map(|call| Part {
            name: Some(call.name.clone()),
            ..part(PartKind::ToolCall, &call.arguments)
        });
        Message {
            role: "assistant".to_owned(),
            parts: texts.map(|(kind, text)| part(kind, text)).chain(calls).collect(),
        }
    };
    Some(heard.choices.iter().map(message).collect())
}

fn side(
    messages: Option<Vec<Message>>,
    keep: Keep,
    redactor: &Redactor,
    key: &HashKey,
    counts: &mut Counts,
) -> Side {
    let Some(messages) = messages else {
        return Side::absent(Absent::Unreadable);
    };
    let parts = messages.iter().flat_map(|message| &message.parts);
    let texts = parts.filter(|part| part.kind != PartKind::Other);
    let bytes = texts.map(|part| part.content.len() as u64).sum();
    let side = Side {
        bytes: Some(bytes),
        ..Side::default()
    };
    match keep.mode {
        Mode::None => Side::default(),
        Mode::Hash => Side {
            hash: Some(hex(&hmac(key, &messages))),
            ..side
        },
        Mode::Redacted => cut(messages, keep.max_bytes, side, &mut |text, limit| {
            let redacted = redactor.redact(text, limit, counts);
            (redacted.text.into_owned(), redacted.truncated)
        }),
        Mode::Full => cut(messages, keep.max_bytes, side, &mut |text, limit| {
            let end = (0..=limit.min(text.len()))
                .rev()
                .find(|&at| text.is_char_boundary(at));
            let kept = text.get(..end.unwrap_or(0)).unwrap_or_default();
            (kept.to_owned(), kept.len() < text.len())
        }),
    }
}

/// The messages up to the limit, each text as `make` gives it: the text and a limit in, what is kept of it and whether that is
/// less than all out.
fn cut(
    messages: Vec<Message>,
    limit: usize,
    mut side: Side,
    make: &mut dyn FnMut(&str, usize) -> (String, bool),
) -> Side {
    let mut left = limit;
    for message in messages {
        let mut parts = Vec::new();
        for mut part in message.parts {
            if part.kind == PartKind::Other {
                part.content = String::new();
            }
            let Some(room) = left.checked_sub(PART_COST).filter(|room| *room > 0) else {
                side.truncated = true;
                break;
            };
            left = room.saturating_sub(part.content.len());
            let (content, truncated) = make(&part.content, room);
            side.truncated |= truncated;
            parts.push(Part {
                kind: part.kind,
                name: part.name.map(|name| make(&name, NAME).0),
                content,
            });
        }
        if parts.is_empty() && side.truncated {
            break;
        }
        side.messages.push(Message {
            role: make(&message.role, NAME).0,
            parts,
        });
        left = left.saturating_sub(PART_COST);
    }
    side
}

/// HMAC-SHA-256 (RFC 2104) of the messages; lengths stand before texts, so that no two sequences look alike.
fn hmac(key: &HashKey, messages: &[Message]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let padded = |with: u8| {
        let mut block = [with; BLOCK];
        block.iter_mut().zip(key.0).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let mut inner = Sha256::new_with_prefix(padded(0x36));
    let mut text = |text: &str| {
        inner.update((text.len() as u64).to_le_bytes());
        inner.update(text);
    };
    for message in messages {
        text(&message.role);
        for part in &message.parts {
            text(part.kind.as_str());
            text(part.name.as_deref().unwrap_or_default());
            text(&part.content);
        }
    }
    let mut outer = Sha256::new_with_prefix(padded(0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}
