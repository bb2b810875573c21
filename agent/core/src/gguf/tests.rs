//! Files of the format as they should be, cut short and hostile.
//!
//! Owns: cases and properties of the reader. Refuses: what a vocabulary means.

use super::*;
use proptest::prelude::*;

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn head(pairs: u64) -> Vec<u8> {
    [&b"GGUF\x03\0\0\0"[..], &7u64.to_le_bytes(), &pairs.to_le_bytes()].concat()
}

fn pair(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(key)[..], &kind.to_le_bytes(), value].concat()
}

fn array(kind: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), elements].concat()
}

fn file() -> Vec<u8> {
    let nested = array(ARRAY, 1, &array(0, 3, &[1, 2, 3]));
    [
        head(9),
        pair("general.name", TEXT, &text("tiny")),
        pair("a.layers", 4, &6u32.to_le_bytes()),
        pair(
            "a.skipped",
            ARRAY,
            &array(TEXT, 2, &[text("x"), text("yz")].concat()),
        ),
        pair("a.nested", ARRAY, &nested),
        pair(
            "tokenizer.ggml.tokens",
            ARRAY,
            &array(TEXT, 2, &[text("Ġa"), text("b")].concat()),
        ),
        pair(
            "tokenizer.ggml.token_type",
            ARRAY,
            &array(5, 2, &[1i32.to_le_bytes(), (-3i32).to_le_bytes()].concat()),
        ),
        pair(
            "tokenizer.ggml.scores",
            ARRAY,
            &array(6, 2, &[0.5f32.to_le_bytes(), (-1f32).to_le_bytes()].concat()),
        ),
        pair("tokenizer.ggml.add_bos_token", 7, &[1]),
        pair("tokenizer.ggml.nested", ARRAY, &nested),
        b"tensors".to_vec(),
    ]
    .concat()
}

fn read(bytes: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::read(bytes, |key| {
        key.starts_with("tokenizer.") || key == "general.name"
    })
}

#[test]
fn what_was_asked_for_is_read_and_the_rest_passed_over() {
    let gguf = read(&file()).expect("a file");
    assert_eq!(gguf.text("general.name"), Some("tiny"));
    assert_eq!(gguf.get("a.layers"), None);
    assert_eq!(
        gguf.texts("tokenizer.ggml.tokens"),
        Some(&["Ġa".to_owned(), "b".to_owned()][..])
    );
    assert_eq!(
        gguf.get("tokenizer.ggml.token_type"),
        Some(&Value::Ints(vec![1, -3]))
    );
    assert_eq!(
        gguf.get("tokenizer.ggml.scores"),
        Some(&Value::Floats(vec![0.5, -1.0]))
    );
    assert_eq!(gguf.bool("tokenizer.ggml.add_bos_token"), Some(true));
    assert_eq!(gguf.get("tokenizer.ggml.nested"), Some(&Value::Other));
    assert_eq!(gguf.uint("general.name"), None, "of another type");
}

#[test]
fn a_file_that_ends_early_is_an_error() {
    let whole = file();
    for length in 0..whole.len() - b"tensors".len() {
        assert!(read(&whole[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn claims_beyond_any_model_are_refused() {
    let huge = u64::MAX.to_le_bytes();
    for (what, bytes) in [
        ("no GGUF", b"GGML\x03\0\0\0".to_vec()),
        ("version 1", b"GGUF\x01\0\0\0".to_vec()),
        ("big-endian", b"GGUF\0\0\0\x03".to_vec()),
        ("pairs", head(u64::MAX)),
        ("key", [&head(1)[..], &huge].concat()),
        ("text", [head(1), pair("tokenizer.a", TEXT, &huge)].concat()),
        ("skipped text", [head(1), pair("a", TEXT, &huge)].concat()),
        (
            "array",
            [head(1), pair("tokenizer.a", ARRAY, &array(0, u64::MAX, &[]))].concat(),
        ),
        ("type", [head(1), pair("tokenizer.a", 13, &[])].concat()),
        (
            "nesting",
            [
                head(1),
                pair(
                    "a",
                    ARRAY,
                    &array(
                        ARRAY,
                        1,
                        &array(ARRAY, 1, &array(ARRAY, 1, &array(ARRAY, 1, &array(0, 0, &[])))),
                    ),
                ),
            ]
            .concat(),
        ),
        (
            "UTF-8",
            [
                head(1),
                pair("tokenizer.a", TEXT, &[&1u64.to_le_bytes()[..], &[0xff]].concat()),
            ]
            .concat(),
        ),
    ] {
        assert!(read(&bytes).is_err(), "{what}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..300, byte in any::<u8>()) {
        let _ = read(&[head(3), bytes].concat());
        let mut damaged = file();
        if let Some(place) = damaged.get_mut(at) {
            *place = byte;
        }
        let _ = read(&damaged);
    }
}
