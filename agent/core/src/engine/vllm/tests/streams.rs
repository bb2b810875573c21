//! What libzmq puts on a socket, joined anywhere; judging starts; arbitrary bytes.

use super::{
    super::{OUTPUTS, REQUESTS, ShapeError, VllmReader},
    facts, frames, hex, messages, parts_of, streams, text, with_message,
};
use crate::wire::zmtp::{Dead, Limits, Start, ZmtpDecoder, ZmtpEvent};
use proptest::prelude::*;
use serde_json::Value;

/// Facts of a stream that libzmq wrote, in pieces of `size` bytes, joined after `skip` of them.
fn replay(stream: &Value, size: usize, skip: usize) -> (Vec<Result<Value, ShapeError>>, Option<Dead>) {
    let bytes = hex(text(stream, text(stream, "side")));
    let name = text(stream, "name");
    let mut decoder = ZmtpDecoder::new(if name == "requests" { REQUESTS } else { OUTPUTS });
    if skip > 0 {
        decoder.resync();
    }
    let mut told = Vec::new();
    for piece in bytes[skip.min(bytes.len())..].chunks(size) {
        decoder.push(piece, &mut |event| {
            if let ZmtpEvent::Message(message) = event {
                told.push(facts(name, VllmReader::new(Some("0.32.0+cpu")), message));
            }
        });
    }
    (told, decoder.dead())
}

#[test]
fn what_libzmq_puts_on_a_socket_gives_the_same_facts() {
    let messages = messages();
    for stream in streams() {
        let expected: Vec<&Value> = messages
            .iter()
            .filter(|f| text(f, "made") == "released" && text(f, "stream") == text(stream, "name"))
            .map(|f| &f["expect"])
            .collect();
        for size in [1, 7, 8192, usize::MAX] {
            let (told, dead) = replay(stream, size, 0);
            assert_eq!(
                told.iter().map(|t| t.as_ref().expect("fits")).collect::<Vec<_>>(),
                expected
            );
            assert_eq!(dead, None);
        }
    }
}

#[test]
fn joined_anywhere_only_true_facts_are_told() {
    let messages = messages();
    for stream in streams() {
        let length = text(stream, text(stream, "side")).len() / 2;
        for skip in (1..length).step_by(31) {
            let (told, _) = replay(stream, 4096, skip);
            for fact in told.into_iter().flatten() {
                assert!(messages.iter().any(|f| f["expect"] == fact), "{skip}: {fact}");
            }
        }
    }
}

#[test]
fn every_true_message_is_taken_for_a_start() {
    for fixture in messages() {
        let expect = fixture["expect"].as_object().expect("one");
        // What tells no facts begins no reading either.
        let silent = expect.contains_key("nothing");
        let parts = parts_of(fixture);
        let bytes = frames(&parts);
        let (more, len) = (parts.len() > 1, parts[0].len() as u64);
        let check = if text(fixture, "stream") == "requests" {
            REQUESTS
        } else {
            OUTPUTS
        };
        let following = &bytes[9..bytes.len().min(9 + 320)];
        let start = check(more, len, following);
        assert_eq!(start == Start::Yes, !silent, "{fixture}");
        // It never changes its mind.
        for seen in 0..following.len() {
            let earlier = check(more, len, &following[..seen]);
            assert!(earlier == Start::Unsure || earlier == start, "{seen}");
        }
    }
}

proptest! {
    #[test]
    fn any_change_of_a_true_message_is_read_or_refused(
        which in 0usize..30, at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
        limit in 0usize..400, version in prop::sample::select(vec![None, Some("0.32.0"), Some("0.10.2"), Some("0.13.0")]),
    ) {
        let fixtures = messages();
        let fixture = &fixtures[which % fixtures.len()];
        let mut parts = parts_of(fixture);
        let last = parts.last_mut().expect("some");
        let at = at.index(last.len());
        last[at] = byte;
        last.truncate(cut.index(last.len()) + 1);
        with_message(&parts, Limits { message: limit, ..Limits::default() }, &mut |message| {
            let _ = VllmReader::new(version).request(message);
            let _ = VllmReader::new(version).step(message);
        });
    }

    #[test]
    fn any_bytes_are_judged_alike_however_many_are_seen(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0x90u8..0xa4, Just(0)], 0..60), more in any::<bool>(), len in 0u64..300) {
        for check in [REQUESTS, OUTPUTS] {
            let end = check(more, len, &bytes);
            for seen in 0..bytes.len() {
                let earlier = check(more, len, &bytes[..seen]);
                prop_assert!(earlier == Start::Unsure || earlier == end);
            }
        }
    }
}
