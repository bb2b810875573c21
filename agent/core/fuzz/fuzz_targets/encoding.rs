//! Content codings: any split decodes to the same, what was compressed comes back, and expansion is bounded.
#![no_main]

use flate2::{Compression, write::DeflateEncoder, write::GzEncoder, write::ZlibEncoder};
use infertap_core::wire::encoding::{Coding, ContentDecoder, EncodingError};
use infertap_core_fuzz::{Op, options, split, whole};
use libfuzzer_sys::fuzz_target;
use std::io::Write;

fn run(coding: Coding, ops: &[Op<'_>]) -> (Vec<u8>, Result<(), EncodingError>, bool) {
    let mut decoder = ContentDecoder::new(coding);
    let (mut out, mut fed) = (Vec::new(), 0);
    for op in ops {
        match *op {
            Op::Feed(bytes) => {
                fed += bytes.len();
                let result = decoder.feed(bytes, &mut |piece| {
                    assert!(!piece.is_empty());
                    out.extend_from_slice(piece);
                });
                assert!(out.len() <= (1 << 20) + 200 * fed + (16 << 10));
                if result.is_err() {
                    assert_eq!(
                        decoder.feed(b"x", &mut |_| panic!("output after an error")),
                        result
                    );
                    assert!(!decoder.complete());
                    return (out, result, false);
                }
            }
            Op::Gap(_) => decoder.gap(),
        }
    }
    let complete = decoder.complete();
    (out, Ok(()), complete)
}

fuzz_target!(|input: &[u8]| {
    let Some((flags, seed, stream)) = options(input) else {
        return;
    };
    let coding = [
        Coding::Gzip,
        Coding::Deflate,
        Coding::Identity,
        Coding::Unsupported,
    ][usize::from(flags & 3)];
    let ops = whole(stream);
    let (out, result, complete) = run(coding, &ops);
    let (split_out, split_result, split_complete) = run(coding, &split(&ops, seed));
    if result.is_ok() {
        assert_eq!((split_result, split_complete), (result, complete));
        assert!(out == split_out);
    } else {
        // Corrupt data may be noticed a little sooner or later, and at the bound another reason may come first.
        assert!(split_result.is_err());
        assert!(out.starts_with(&split_out) || split_out.starts_with(&out));
    }
    let level = Compression::new(u32::from(flags >> 4).min(9));
    let written = match (flags >> 2) & 3 {
        0 => {
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder
                .write_all(stream)
                .and_then(|()| encoder.finish())
                .map(|bytes| (Coding::Gzip, bytes))
        }
        1 => {
            let mut encoder = ZlibEncoder::new(Vec::new(), level);
            encoder
                .write_all(stream)
                .and_then(|()| encoder.finish())
                .map(|bytes| (Coding::Deflate, bytes))
        }
        _ => {
            let mut encoder = DeflateEncoder::new(Vec::new(), level);
            encoder
                .write_all(stream)
                .and_then(|()| encoder.finish())
                .map(|bytes| (Coding::Deflate, bytes))
        }
    };
    let Ok((coding, bytes)) = written else {
        unreachable!("writing to memory")
    };
    // Without compression a bare deflate stream may begin like a zlib header; peers that send it bare do compress.
    if !bytes.is_empty() && ((flags >> 2) & 3 < 2 || bytes[0] & 0x0f != 8) {
        let (out, result, complete) = run(coding, &split(&[Op::Feed(&bytes)], seed));
        assert_eq!((result, complete), (Ok(()), true));
        assert!(out == stream);
    }
});
