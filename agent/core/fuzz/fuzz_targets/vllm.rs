//! ZMTP with vLLM's messages in it: any split gives the same, memory is bounded, whatever is told is within its message.
#![no_main]

use infertap_core::{
    engine::vllm::{OUTPUTS, REQUESTS, Request, VllmReader},
    wire::zmtp::{Dead, Limits, ZmtpDecoder, ZmtpEvent},
};
use infertap_core_fuzz::{Op, options, split, whole};
use libfuzzer_sys::fuzz_target;

const VERSIONS: [Option<&str>; 4] = [None, Some("0.32.0"), Some("0.10.2"), Some("0.15.0")];

#[derive(Debug, PartialEq)]
enum Seen {
    Greeting(u8),
    Command(Vec<u8>),
    /// Parts with their true lengths, and what the reader made of them.
    Message(Vec<(Vec<u8>, u64)>, bool, String),
    Lost,
    Found(u64),
}

fn run(first: u8, ops: &[Op<'_>]) -> (Vec<Seen>, Option<Dead>) {
    let requests = first & 1 == 0;
    let limits = Limits {
        message: if first & 2 == 0 { 1024 } else { 64 },
        parts: 4,
        search: 64 * 1024,
    };
    let reader = VllmReader::new(VERSIONS[usize::from(first >> 3 & 3)]);
    let mut decoder = ZmtpDecoder::with_limits(if requests { REQUESTS } else { OUTPUTS }, limits);
    if first & 4 != 0 {
        decoder.resync();
    }
    let mut seen = Vec::new();
    for op in ops {
        let mut sink = |event: ZmtpEvent<'_>| {
            seen.push(match event {
                ZmtpEvent::Greeting { minor } => Seen::Greeting(minor),
                ZmtpEvent::Command { name } => Seen::Command(name.to_vec()),
                ZmtpEvent::Lost => Seen::Lost,
                ZmtpEvent::Found { skipped } => Seen::Found(skipped),
                ZmtpEvent::Message(message) => {
                    let parts: Vec<_> = (0..message.parts())
                        .filter_map(|at| message.part(at).map(|part| (part.bytes.to_vec(), part.len)))
                        .collect();
                    assert!(!parts.is_empty() && parts.len() <= limits.parts);
                    assert!(parts.iter().all(|(bytes, len)| bytes.len() as u64 <= *len));
                    assert!(parts.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() <= limits.message);
                    let facts = if requests {
                        let request = reader.request(message);
                        if let Ok(Request::Added(added)) = &request {
                            assert!(!added.engine_id.is_empty());
                        }
                        format!("{request:?}")
                    } else {
                        let step = reader.step(message);
                        if let Ok(step) = &step {
                            assert!(step.outputs.iter().all(|output| !output.engine_id.is_empty()));
                        }
                        format!("{step:?}")
                    };
                    Seen::Message(parts, message.complete, facts)
                }
            });
        };
        match *op {
            Op::Feed(bytes) => decoder.push(bytes, &mut sink),
            Op::Gap(len) => decoder.gap(len, &mut sink),
        }
        // A piece that completes a held start is held with it for a moment.
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
