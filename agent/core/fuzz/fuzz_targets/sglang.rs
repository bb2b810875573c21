//! ZMTP with SGLang's messages in it: any split gives the same, memory is bounded, whatever is told is of its message.
#![no_main]

use infertap_core::{
    engine::sglang::{MESSAGES, SglangReader, Told},
    wire::zmtp::{Dead, Limits, ZmtpDecoder, ZmtpEvent},
};
use infertap_core_fuzz::{Op, options, split, whole};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, PartialEq)]
enum Seen {
    /// What the reader made of a message, and the bytes it has.
    Message(String, u64),
    Lost,
    Found(u64),
}

fn run(first: u8, ops: &[Op<'_>]) -> (Vec<Seen>, Option<Dead>) {
    let limits = Limits {
        message: if first & 2 == 0 { 4096 } else { 256 },
        parts: 4,
        search: 64 * 1024,
    };
    let mut decoder = ZmtpDecoder::with_limits(MESSAGES, limits);
    if first & 4 != 0 {
        decoder.resync();
    }
    let mut seen = Vec::new();
    for op in ops {
        let mut sink = |event: ZmtpEvent<'_>| match event {
            ZmtpEvent::Greeting { .. } | ZmtpEvent::Command { .. } => {}
            ZmtpEvent::Lost => seen.push(Seen::Lost),
            ZmtpEvent::Found { skipped } => seen.push(Seen::Found(skipped)),
            ZmtpEvent::Message(message) => {
                let told = SglangReader.read(message);
                match &told {
                    Ok(Told::Added(added)) => assert!(added.iter().all(|added| !added.rid.is_empty())),
                    Ok(Told::Outputs(outputs)) => assert!(outputs.outputs.len() <= limits.message),
                    _ => {}
                }
                seen.push(Seen::Message(
                    format!("{told:?}"),
                    message.part(0).map_or(0, |part| part.len),
                ));
            }
        };
        match *op {
            Op::Feed(bytes) => decoder.push(bytes, &mut sink),
            Op::Gap(len) => decoder.gap(len, &mut sink),
        }
        assert!(decoder.buffered() <= 64 * 1024);
    }
    (seen, decoder.dead())
}

fuzz_target!(|input: &[u8]| {
    let Some((first, second, stream)) = options(input) else {
        return;
    };
    let ops = whole(stream);
    assert_eq!(run(first, &ops), run(first, &split(&ops, second)));
});
