//! GGUF heads: nothing panics, and a head whose end is cut off is an error or tells the same.
#![no_main]

use infertap_core::gguf::Gguf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let read = |bytes: &[u8]| Gguf::read(bytes, |key| key.starts_with("tokenizer."));
    let Ok(whole) = read(input) else { return };
    // What follows the head is not looked at.
    let more = read(&[input, b"more"].concat()).expect("the same head");
    for key in [
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.scores",
        "tokenizer.chat_template",
    ] {
        // Numbers that are none are not equal to themselves.
        assert_eq!(format!("{:?}", whole.get(key)), format!("{:?}", more.get(key)));
    }
    assert!(read(&[]).is_err());
});
