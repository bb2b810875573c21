//! Framing, holes, late starts and bounds.

use super::*;
use proptest::prelude::*;

/// Every message of these tests starts with `BEGIN`.
fn begins(_more: bool, len: u64, following: &[u8]) -> Start {
    const BEGIN: &[u8] = b"BEGIN";
    let seen = following.len().min(BEGIN.len());
    if len < BEGIN.len() as u64 || following[..seen] != BEGIN[..seen] {
        Start::No
    } else if seen < BEGIN.len() {
        Start::Unsure
    } else {
        Start::Yes
    }
}

fn greeting(mechanism: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend_from_slice(&[3, 1]);
    bytes.extend_from_slice(mechanism);
    bytes.resize(GREETING_LEN, 0);
    bytes
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = if body.len() > 255 {
        let mut bytes = vec![flags | 2];
        bytes.extend_from_slice(&(body.len() as u64).to_be_bytes());
        bytes
    } else {
        vec![flags, body.len() as u8]
    };
    bytes.extend_from_slice(body);
    bytes
}

const READY: &[u8] = b"\x05READY\x0bSocket-Type\0\0\0\x04PULL";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Greeting(u8),
    Command(String),
    /// Kept bytes and true length of each part; all parts seen.
    Message(Vec<(Vec<u8>, u64)>, bool),
    Lost,
    Found(u64),
}

fn told(event: ZmtpEvent<'_>) -> Told {
    match event {
        ZmtpEvent::Greeting { minor } => Told::Greeting(minor),
        ZmtpEvent::Command { name } => Told::Command(String::from_utf8_lossy(name).into()),
        ZmtpEvent::Message(message) => Told::Message(
            (0..message.parts())
                .map(|i| {
                    message
                        .part(i)
                        .map(|part| (part.bytes.to_vec(), part.len))
                        .expect("counted")
                })
                .collect(),
            message.complete,
        ),
        ZmtpEvent::Lost => Told::Lost,
        ZmtpEvent::Found { skipped } => Told::Found(skipped),
    }
}

struct Read {
    decoder: ZmtpDecoder,
    told: Vec<Told>,
}

impl Read {
    fn new(limits: Limits) -> Read {
        Read {
            decoder: ZmtpDecoder::with_limits(begins, limits),
            told: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> &mut Read {
        self.decoder.push(bytes, &mut |event| self.told.push(told(event)));
        self
    }

    fn gap(&mut self, len: u64) -> &mut Read {
        self.decoder.gap(len, &mut |event| self.told.push(told(event)));
        self
    }
}

fn whole(parts: &[&[u8]]) -> Told {
    Told::Message(
        parts
            .iter()
            .map(|part| (part.to_vec(), part.len() as u64))
            .collect(),
        true,
    )
}

fn opened() -> Read {
    let mut read = Read::new(Limits::default());
    read.push(&greeting(b"NULL"));
    read.told.clear();
    read
}

fn conversation() -> (Vec<u8>, Vec<Told>) {
    let long = [b"BEGIN".to_vec(), vec![7; 300]].concat();
    let bytes = [
        greeting(b"NULL"),
        frame(4, READY),
        frame(1, b"BEGIN a"),
        frame(0, b""),
        frame(0, &long),
        frame(4, b"\x04PING\0\0"),
        frame(1, b"BEGIN"),
        frame(1, b"two"),
        frame(0, b"three"),
    ]
    .concat();
    let told = vec![
        Told::Greeting(1),
        Told::Command("READY".into()),
        whole(&[b"BEGIN a", b""]),
        whole(&[&long]),
        Told::Command("PING".into()),
        whole(&[b"BEGIN", b"two", b"three"]),
    ];
    (bytes, told)
}

#[test]
fn greeting_commands_and_messages_are_told() {
    let (bytes, expected) = conversation();
    assert_eq!(Read::new(Limits::default()).push(&bytes).told, expected);
}

#[test]
fn what_is_no_plain_zmtp_3_is_given_up() {
    for (bytes, why) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), Dead::NotZmtp),
        ([&[0xff][..], &[0; 9]].concat(), Dead::NotZmtp),
        ([&SIGNATURE[..], &[1]].concat(), Dead::Version(1)),
        (greeting(b"CURVE"), Dead::Encrypted),
        (greeting(b""), Dead::Encrypted),
    ] {
        let mut read = Read::new(Limits::default());
        for byte in &bytes {
            read.push(&[*byte]);
        }
        assert_eq!(read.decoder.dead(), Some(why), "{bytes:?}");
        read.push(&frame(0, b"BEGIN")).gap(3);
        read.decoder.resync();
        read.push(&frame(0, b"BEGIN"));
        assert_eq!(read.told, [], "{bytes:?}");
        assert_eq!(read.decoder.buffered(), 0);
    }
}

#[test]
fn a_hole_within_a_frame_is_stepped_over() {
    let mut read = opened();
    read.push(&[1, 10])
        .push(b"BEG")
        .gap(4)
        .push(b"xyz")
        .push(&frame(0, b"end"));
    assert_eq!(
        read.told,
        [Told::Message(
            vec![(b"BEG".to_vec(), 10), (b"end".to_vec(), 3)],
            true
        )]
    );
}

#[test]
fn a_hole_that_ends_with_its_frame_loses_nothing_else() {
    let mut read = opened();
    read.push(&[0, 10]).push(b"BEG").gap(7).push(&frame(0, b"next"));
    assert_eq!(
        read.told,
        [
            Told::Message(vec![(b"BEG".to_vec(), 10)], true),
            whole(&[b"next"])
        ]
    );
}

#[test]
fn a_hole_past_a_frame_tells_the_parts_seen_and_finds_the_next_message() {
    let mut read = opened();
    read.push(&frame(1, b"BEGIN")).push(&[1, 4]).push(b"tw").gap(40);
    read.push(b"\0\x01 garbage \x02\0")
        .push(&frame(0, b"BEGIN again"));
    assert_eq!(
        read.told,
        [
            Told::Message(vec![(b"BEGIN".to_vec(), 5), (b"tw".to_vec(), 4)], false),
            Told::Lost,
            Told::Found(13),
            whole(&[b"BEGIN again"]),
        ]
    );
}

#[test]
fn a_late_start_finds_the_first_message() {
    let mut read = Read::new(Limits::default());
    read.decoder.resync();
    read.push(b"rest of a body")
        .push(&frame(0, b"BEGIN"))
        .push(&frame(0, b"unlike a start"));
    assert_eq!(
        read.told,
        [Told::Found(14), whole(&[b"BEGIN"]), whole(&[b"unlike a start"])]
    );
}

#[test]
fn an_impossible_header_starts_a_search_at_that_very_byte() {
    let mut read = opened();
    read.push(b"\x99").push(&frame(0, b"BEGIN"));
    assert_eq!(read.told, [Told::Lost, Told::Found(1), whole(&[b"BEGIN"])]);
}

#[test]
fn large_messages_are_cut_and_their_length_is_known() {
    let limits = Limits {
        message: 8,
        parts: 2,
        ..Limits::default()
    };
    let mut read = Read::new(limits);
    read.push(&greeting(b"NULL"));
    read.told.clear();
    read.push(&frame(1, b"BEGIN"))
        .push(&frame(1, &[7; 1000]))
        .push(&frame(0, b"third"));
    assert_eq!(
        read.told,
        [Told::Message(
            vec![(b"BEGIN".to_vec(), 5), (vec![7; 3], 1000)],
            true
        )]
    );
    let mut read = opened();
    read.push(&frame(0, &vec![7; 400_000]));
    assert_eq!(
        read.told,
        [Told::Message(vec![(vec![7; 256 * 1024], 400_000)], true)]
    );
    assert!(
        read.decoder.buffered() <= 2 * KEEP_CAPACITY,
        "given back: {}",
        read.decoder.buffered()
    );
}

#[test]
fn a_search_ends_at_its_bound() {
    let mut read = Read::new(Limits {
        search: 1000,
        ..Limits::default()
    });
    read.decoder.resync();
    for _ in 0..300 {
        read.push(&[0xaa; 4]);
    }
    assert_eq!(read.decoder.dead(), Some(Dead::NothingFound));
    assert_eq!(read.told, []);
}

#[derive(Debug, Clone)]
enum Step {
    Push(Vec<u8>),
    Gap(u64),
    Resync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        proptest::collection::vec(0u8..6, 0..40),
        (0u8..4, 0usize..400)
            .prop_map(|(flags, len)| frame(flags & 1, &[b"BEGIN".to_vec(), vec![1; len]].concat())),
        Just(frame(4, READY)),
    ];
    let step = prop_oneof![
        8 => bytes.prop_map(Step::Push),
        2 => prop_oneof![0u64..600, Just(u64::MAX)].prop_map(Step::Gap),
        1 => Just(Step::Resync),
    ];
    proptest::collection::vec(step, 0..30)
}

proptest! {
    #[test]
    fn any_split_gives_the_same(cuts in proptest::collection::vec(0usize..500, 0..12), late in any::<bool>(), drop in 0usize..100) {
        let (bytes, expected) = conversation();
        let bytes = if late { &bytes[drop..] } else { &bytes };
        let run = |cuts: &[usize]| {
            let mut read = Read::new(Limits::default());
            if late {
                read.decoder.resync();
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % bytes.len()).collect();
            cuts.sort_unstable();
            let mut from = 0;
            for to in cuts.into_iter().chain([bytes.len()]) {
                read.push(&bytes[from..to]);
                from = to;
            }
            read.told
        };
        let told = run(&cuts);
        prop_assert_eq!(&told, &run(&[]));
        if late {
            prop_assert_eq!(told.last(), expected.last());
        } else {
            prop_assert_eq!(told, expected);
        }
    }

    #[test]
    fn nothing_panics_and_memory_is_bounded(fresh in any::<bool>(), steps in steps()) {
        let limits = Limits { message: 300, parts: 3, search: 2000 };
        let mut read = Read::new(limits);
        if fresh {
            read.push(&greeting(b"NULL"));
        }
        for step in steps {
            match step {
                Step::Push(bytes) => { read.push(&bytes); }
                Step::Gap(len) => { read.gap(len); }
                Step::Resync => read.decoder.resync(),
            }
            prop_assert!(read.decoder.buffered() < 4 * 1024, "{}", read.decoder.buffered());
        }
        for told in &read.told {
            if let Told::Message(parts, _) = told {
                prop_assert!(!parts.is_empty() && parts.len() <= 3);
                prop_assert!(parts.iter().all(|(bytes, len)| bytes.len() as u64 <= *len));
                prop_assert!(parts.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() <= 300);
            }
        }
    }

    /// A hole anywhere: every message told whole afterwards is one that was sent.
    #[test]
    fn a_hole_invents_no_message(at in 64usize..460, len in 1usize..120) {
        let (bytes, expected) = conversation();
        let at = at.min(bytes.len());
        let end = (at + len).min(bytes.len());
        let mut read = Read::new(Limits::default());
        read.push(&bytes[..at]).gap((end - at) as u64).push(&bytes[end..]);
        for told in &read.told {
            if let Told::Message(parts, true) = told
                && parts.iter().all(|(bytes, len)| bytes.len() as u64 == *len)
            {
                prop_assert!(expected.iter().any(|sent| match sent {
                    Told::Message(sent, _) => sent.ends_with(parts),
                    _ => false,
                }), "{told:?}");
            }
        }
    }
}
