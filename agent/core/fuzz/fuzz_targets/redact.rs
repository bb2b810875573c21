//! Redacting: what was redacted stays as it is, only what was found is gone, a limit changes nothing before it, and a secret
//! that stands by itself does not get through, whatever is around it.
#![no_main]

use infertap_core::redact::{Counts, Custom, Redactor};
use infertap_core_fuzz::options;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Bytes that are looked at: what detectors look around is shorter, and a look takes a millisecond with coverage counted.
const MOST: usize = 768;

/// With patterns that find what placeholders hold, too.
static REDACTORS: LazyLock<[Redactor; 2]> = LazyLock::new(|| {
    let mut custom = Custom::default();
    for (name, pattern) in [("employee", "EMP-[0-9]{6}"), ("word", "[A-Z]{3,}")] {
        custom.add(name, pattern).expect("a pattern");
    }
    [Redactor::default(), Redactor::new(custom)]
});

/// What is known by its shape or its check digits. A longer number may hold another, and is no secret.
const SECRETS: [&str; 7] = [
    "4111 1111 1111 1111",
    "alice@example.com",
    "11010519491231002X",
    "DE89370400440532013000",
    "+8613812345678",
    concat!("ghp", "_16C7e42F292c6912E7710c838347Ae178B4a"),
    concat!("AKIA", "IOSFODNN7EXAMPLE"),
];

fn redact(redactor: &Redactor, text: &str, limit: usize) -> (String, Counts) {
    let mut counts = Counts::new();
    let redacted = redactor.redact(text, limit, &mut counts);
    assert_eq!(redacted.truncated, limit < text.len());
    // Each replacement takes at least one byte, and no placeholder is longer than this.
    assert!(redacted.text.len() <= text.len().min(limit) * 18 + 18);
    (redacted.text.into_owned(), counts)
}

fuzz_target!(|input: &[u8]| {
    let Some((flags, cut, stream)) = options(input) else {
        return;
    };
    let redactor = &REDACTORS[usize::from(flags & 1)];
    let text = String::from_utf8_lossy(&stream[..stream.len().min(MOST)]);

    let found = redactor.find(&text);
    let mut at = 0;
    for (name, span) in &found {
        assert!(at <= span.start && span.start < span.end && !name.is_empty());
        assert!(text.get(span.clone()).is_some());
        at = span.end;
    }

    let (once, counts) = redact(redactor, &text, usize::MAX);
    assert_eq!(found.is_empty(), counts.is_empty());
    assert_eq!(found.is_empty(), once == text);
    let (twice, counts) = redact(redactor, &once, usize::MAX);
    assert_eq!(once, twice);
    assert!(counts.is_empty(), "{counts:?}");

    let at = usize::from(cut) * 3;
    let at = (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    let limit = at.unwrap_or(0);
    if flags & 2 == 0 {
        // What is cut off was looked at with the rest.
        let (head, _) = redact(redactor, &text, limit);
        let (again, _) = redact(redactor, &head, usize::MAX);
        assert_eq!(head, again);
        return;
    }
    let secret = SECRETS[usize::from(flags >> 2) % SECRETS.len()];
    let (before, after) = text.split_at(limit);
    if !text.contains(secret) {
        let planted = format!("{before} {secret} {after}");
        let limit = if flags & 128 == 0 {
            limit + secret.len()
        } else {
            usize::MAX
        };
        let redacted = redactor.redact(&planted, limit, &mut Counts::new());
        assert!(!redacted.text.contains(secret), "{:?}", redacted.text);
    }
});
