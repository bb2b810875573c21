//! Tables and properties of the content decoder.

use super::{Coding, ContentDecoder, EncodingError, PIECE};
use flate2::{Compression, write::DeflateEncoder, write::GzEncoder, write::ZlibEncoder};
use proptest::prelude::*;
use std::io::Write;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("to memory");
    encoder.finish().expect("to memory")
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("to memory");
    encoder.finish().expect("to memory")
}

fn bare(text: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("to memory");
    encoder.finish().expect("to memory")
}

/// Decodes bytes fed in pieces of `step`; what came out, how it ended, and whether it was complete.
fn decode(coding: Coding, bytes: &[u8], step: usize) -> (Vec<u8>, Result<(), EncodingError>, bool) {
    let mut decoder = ContentDecoder::new(coding);
    let mut out = Vec::new();
    for part in bytes.chunks(step.max(1)) {
        let result = decoder.feed(part, &mut |piece| {
            assert!(!piece.is_empty() && (coding == Coding::Identity || piece.len() <= PIECE));
            out.extend_from_slice(piece);
        });
        if result.is_err() {
            return (out, result, decoder.complete());
        }
    }
    (out, Ok(()), decoder.complete())
}

#[test]
fn fields_name_the_coding() {
    for (fields, expected) in [
        (vec![], Coding::Identity),
        (vec![("content-encoding", "")], Coding::Identity),
        (vec![("content-encoding", "GZIP")], Coding::Gzip),
        (vec![("content-encoding", "identity, x-gzip ")], Coding::Gzip),
        (
            vec![("content-encoding", "deflate"), ("transfer-encoding", "chunked")],
            Coding::Deflate,
        ),
        (vec![("transfer-encoding", "gzip, chunked")], Coding::Gzip),
        (vec![("content-encoding", "br")], Coding::Unsupported),
        (vec![("content-encoding", "zstd")], Coding::Unsupported),
        (vec![("content-encoding", "gzip, gzip")], Coding::Unsupported),
        (vec![("accept-encoding", "gzip")], Coding::Identity),
    ] {
        let headers: Vec<_> = fields
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        assert_eq!(Coding::of(&headers), expected, "{fields:?}");
    }
}

#[test]
fn what_is_flushed_comes_out_at_once() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut decoder = ContentDecoder::new(Coding::Gzip);
    for index in 0..50 {
        let event = format!("data: {{\"index\":{index}}}\n\n");
        encoder.write_all(event.as_bytes()).expect("to memory");
        encoder.flush().expect("to memory");
        let sent = std::mem::take(encoder.get_mut());
        let mut out = Vec::new();
        decoder
            .feed(&sent, &mut |piece| out.extend_from_slice(piece))
            .expect("valid");
        assert_eq!(out, event.as_bytes());
        assert!(!decoder.complete());
    }
    encoder.try_finish().expect("to memory");
    decoder
        .feed(&std::mem::take(encoder.get_mut()), &mut |_| panic!("no more"))
        .expect("valid");
    assert!(decoder.complete());
}

#[test]
fn gzip_headers_with_every_field_and_several_members() {
    let mut bytes = flate2::GzBuilder::new()
        .filename("name")
        .comment("comment")
        .extra(vec![7; 300])
        .write(Vec::new(), Compression::default());
    bytes.write_all(b"one ").expect("to memory");
    let mut bytes = bytes.finish().expect("to memory");
    // The header's own checksum, which the builder does not write.
    bytes[3] |= 2;
    let data_at = 10 + 2 + 300 + 5 + 8;
    bytes.splice(data_at..data_at, [1, 2]);
    bytes.extend_from_slice(&gzip(b"two"));
    for step in [1, 7, 1000] {
        assert_eq!(
            decode(Coding::Gzip, &bytes, step),
            (b"one two".to_vec(), Ok(()), true)
        );
    }
    bytes.extend_from_slice(b"\0\0padding");
    assert_eq!(
        decode(Coding::Gzip, &bytes, 3),
        (b"one two".to_vec(), Ok(()), true)
    );
}

#[test]
fn what_can_t_be_decoded_says_why() {
    let mut corrupt = gzip(b"some text that is long enough to be compressed, compressed");
    corrupt[14] ^= 0xff;
    assert_eq!(decode(Coding::Gzip, b"plain", 9).1, Err(EncodingError::Corrupt));
    assert_eq!(
        decode(Coding::Gzip, b"\x1f\x8b\x07", 9).1,
        Err(EncodingError::Corrupt)
    );
    assert_eq!(
        decode(Coding::Gzip, b"\x1f\x8b\x08\xe0", 9).1,
        Err(EncodingError::Corrupt)
    );
    assert_eq!(
        decode(Coding::Deflate, b"\xff\xff\xff\xff", 1).1,
        Err(EncodingError::Corrupt)
    );
    assert_eq!(
        decode(Coding::Unsupported, b"x", 9).1,
        Err(EncodingError::Unsupported)
    );
    let endless_name: Vec<u8> = [&b"\x1f\x8b\x08\x08\0\0\0\0\0\0"[..], &vec![b'n'; 200_000]].concat();
    assert_eq!(
        decode(Coding::Gzip, &endless_name, 4096).1,
        Err(EncodingError::Corrupt)
    );

    let text = gzip(&b"data: {\"index\":0}\n\n".repeat(100));
    let mut decoder = ContentDecoder::new(Coding::Gzip);
    decoder.feed(&text[..20], &mut |_| {}).expect("valid so far");
    decoder.gap();
    for _ in 0..2 {
        assert_eq!(
            decoder.feed(&text[30..], &mut |_| panic!("after a gap")),
            Err(EncodingError::Gap)
        );
    }
    let mut plain = ContentDecoder::new(Coding::Identity);
    plain.gap();
    assert_eq!(plain.feed(b"x", &mut |_| {}), Ok(()));
}

#[test]
fn a_bomb_is_stopped_early() {
    let bomb = gzip(&vec![0; 64 << 20]);
    let (out, result, _) = decode(Coding::Gzip, &bomb, 16384);
    assert_eq!(result, Err(EncodingError::Expansion));
    assert!(out.len() < 8 << 20, "{}", out.len());
}

proptest! {
    #[test]
    fn any_split_gives_the_text_back(
        text in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..3000),
            (1_usize..9000).prop_map(|n| b"data: {\"a\":1}\n\n".repeat(n)),
        ],
        step in 1_usize..600,
    ) {
        for (coding, bytes) in [
            (Coding::Gzip, gzip(&text)),
            (Coding::Deflate, zlib(&text)),
            (Coding::Deflate, bare(&text)),
        ] {
            let (out, result, complete) = decode(coding, &bytes, step);
            prop_assert_eq!(result, Ok(()));
            prop_assert!(complete && out == text, "{:?} {} of {}", coding, out.len(), text.len());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        flip in any::<(usize, u8)>(),
        step in 1_usize..50,
    ) {
        let mut damaged = gzip(&bytes);
        let at = flip.0 % damaged.len();
        damaged[at] ^= flip.1;
        for (coding, bytes) in [(Coding::Gzip, &bytes), (Coding::Deflate, &bytes), (Coding::Gzip, &damaged)] {
            let (out, result, complete) = decode(coding, bytes, step);
            let (whole, whole_result, _) = decode(coding, bytes, bytes.len());
            prop_assert_eq!(result, whole_result);
            prop_assert!(result.is_ok() || !complete);
            // Before an error, how much came out depends on the pieces.
            let agrees = if result.is_ok() { out == whole } else { out.starts_with(&whole) || whole.starts_with(&out) };
            prop_assert!(agrees);
        }
    }
}
