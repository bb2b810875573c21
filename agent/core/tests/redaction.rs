//! The redactor against its corpus: precision and recall by kind, printed with `--nocapture` and held to bounds; and
//! properties of texts that nobody wrote.
//!
//! Recall counts secrets of which nothing is left that gives them away: the whole secret is replaced. Precision counts
//! replacements that touch a secret.

use infertap_core::redact::{Counts, Custom, MARGIN, Redactor};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A case: its text, and where in it which secrets are.
struct Case {
    line: usize,
    text: String,
    secrets: Vec<(String, std::ops::Range<usize>)>,
}

fn corpus() -> Vec<Case> {
    let lines = include_str!("redaction/corpus.txt").lines().enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| {
            let line = line.replace('‖', "").replace('␤', "\n");
            let (mut text, mut secrets) = (String::new(), Vec::new());
            let mut rest = &*line;
            while let Some((before, marked)) = rest.split_once('⟦') {
                let (marked, after) = marked.split_once('⟧').expect("a closed mark");
                let (kind, secret) = marked.split_once(' ').expect("a kind");
                text.push_str(before);
                secrets.push((kind.to_owned(), text.len()..text.len() + secret.len()));
                text.push_str(secret);
                rest = after;
            }
            text.push_str(rest);
            Case {
                line: at + 1,
                text,
                secrets,
            }
        })
        .collect()
}

#[derive(Default, Clone, Copy)]
struct Score {
    secrets: usize,
    found: usize,
    replaced: usize,
    rightly: usize,
}

impl Score {
    fn recall(self) -> f64 {
        self.found as f64 / self.secrets.max(1) as f64
    }

    fn precision(self) -> f64 {
        self.rightly as f64 / self.replaced.max(1) as f64
    }
}

#[test]
fn the_corpus_is_redacted() {
    let redactor = Redactor::default();
    let cases = corpus();
    let mut scores: BTreeMap<String, Score> = BTreeMap::new();
    let mut all = Score::default();
    let mut faults = Vec::new();
    for case in &cases {
        let spans = redactor.find(&case.text);
        for (kind, at) in &case.secrets {
            let covered = spans
                .iter()
                .any(|(_, span)| span.start <= at.start && at.end <= span.end);
            for score in [scores.entry(kind.clone()).or_default(), &mut all] {
                score.secrets += 1;
                score.found += usize::from(covered);
            }
            if !covered {
                faults.push(format!("line {}: missed {kind} in {}", case.line, case.text));
            }
        }
        for (kind, span) in &spans {
            let rightly = case
                .secrets
                .iter()
                .any(|(_, at)| span.start < at.end && at.start < span.end);
            for score in [scores.entry(kind.clone()).or_default(), &mut all] {
                score.replaced += 1;
                score.rightly += usize::from(rightly);
            }
            if !rightly {
                let what = &case.text[span.clone()];
                faults.push(format!(
                    "line {}: {kind} is no secret: {what:?} in {}",
                    case.line, case.text
                ));
            }
        }
    }
    let look_alikes = cases.iter().filter(|case| case.secrets.is_empty()).count();
    println!("{} cases, {look_alikes} of them without a secret", cases.len());
    println!("kind    secrets  found  recall  replaced  rightly  precision");
    for (kind, score) in scores.iter().chain([(&"all".to_owned(), &all)]) {
        println!(
            "{kind:<7} {:>7} {:>6}  {:>6.4} {:>9} {:>8} {:>10.4}",
            score.secrets,
            score.found,
            score.recall(),
            score.replaced,
            score.rightly,
            score.precision(),
        );
    }
    for fault in &faults {
        println!("{fault}");
    }
    assert!(cases.len() >= 300 && look_alikes >= 100);
    assert!(all.recall() >= 0.98, "recall {:.4}", all.recall());
    assert!(all.precision() >= 0.97, "precision {:.4}", all.precision());
    for (kind, score) in &scores {
        assert!(score.recall() >= 0.95 && score.precision() >= 0.95, "{kind}");
    }
}

/// Pieces that detectors know, so that random texts are of what matters.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        "[0-9 .-]{1,24}",
        "\\PC{0,8}",
        prop::sample::select(vec![
            "password=",
            "token: ",
            "密码",
            "sk-",
            "AKIA",
            "eyJ",
            ".",
            "@",
            "a@b.com",
            "[EMAIL]",
            "[KEY]",
            "\\n",
            "\\u0040",
            "+86",
            "13812345678",
            "4111111111111111",
            "Bearer ",
            "Cookie: a=",
            "Cookie: a=\"x\"; b=",
            "Authorization: ",
            "[CUSTOM:",
            "]",
            "%3D",
            "\u{1b}[32m",
            "<password>",
            "</",
            " == ",
            "[\"",
            "KD47 1234 5678 ",
            "-----BEGIN PRIVATE KEY-----",
            "://u:p@h",
            "\u{200b}",
            "\"",
            "'",
            "\n",
            "：",
            "身份证",
            "11010519491231002X",
            "passport ",
            "IBAN ",
            "DE89370400440532013000",
        ])
        .prop_map(str::to_owned),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_redacted_stays_as_it_is(text in text()) {
        let redactor = Redactor::default();
        let once = redactor.redact(&text, usize::MAX, &mut Counts::new()).text.into_owned();
        let mut counts = Counts::new();
        let twice = redactor.redact(&once, usize::MAX, &mut counts);
        prop_assert_eq!(&*twice.text, &*once);
        prop_assert!(counts.is_empty());
    }

    /// Whatever stands around it, and wherever the limit is.
    #[test]
    fn a_secret_never_gets_through(
        before in text(),
        after in text(),
        secret in prop::sample::select(vec![
            "4111 1111 1111 1111", "alice@example.com", "11010519491231002X", "DE89370400440532013000", "+8613812345678",
        ]),
        limit in 0..200_usize,
    ) {
        // A longer number may hold it: that is another number.
        prop_assume!(!before.contains(secret) && !after.contains(secret));
        let text = format!("{before} {secret} {after}");
        for limit in [limit, usize::MAX] {
            let redacted = Redactor::default().redact(&text, limit, &mut Counts::new());
            prop_assert!(!redacted.text.contains(secret), "{}", redacted.text);
        }
    }

    #[test]
    fn spans_are_in_order_and_at_characters(text in text()) {
        let mut at = 0;
        for (_, span) in Redactor::default().find(&text) {
            prop_assert!(at <= span.start && span.start < span.end);
            prop_assert!(text.get(span.clone()).is_some());
            at = span.end;
        }
    }
}

#[test]
fn patterns_of_the_operators_are_replaced_too() {
    let mut custom = Custom::default();
    custom.add("employee", "EMP-[0-9]{6}").expect("a pattern");
    custom.add("word", "[A-Z]{3,}").expect("a pattern");
    let mut counts = Counts::new();
    let redacted = Redactor::new(custom).redact("EMP-123456 and NATO, EMAIL", usize::MAX, &mut counts);
    assert_eq!(
        redacted.text,
        "[CUSTOM:employee] and [CUSTOM:word], [CUSTOM:word]"
    );
    assert_eq!(counts["CUSTOM:employee"], 1);
}

/// A key that begins before the limit and ends far behind what is looked at.
#[test]
fn a_private_key_that_is_cut_is_replaced() {
    let text = format!(
        "key: -----BEGIN PRIVATE KEY-----\n{}",
        "MIIEvQIBADANBg\n".repeat(4 * MARGIN / 15)
    );
    for limit in [40, 100, MARGIN, 2 * MARGIN] {
        let redacted = Redactor::default().redact(&text, limit, &mut Counts::new());
        assert_eq!(redacted.text, "key: [KEY]", "{limit}");
        assert!(redacted.truncated);
    }
}

/// The time is linear: what makes others go back and forth is no slower than other text of its length.
#[test]
fn hostile_texts_are_only_long() {
    let redactor = Redactor::default();
    for piece in [
        "a@",
        "password=",
        "1 ",
        "eyJ.",
        "eyJaaaaaaaaAKIAABCDEFGHIJKLMNOP",
        "SG.aaaaaaaaaaaaaaaa-",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----;",
        "-----END PRIVATE KEY-----",
        "://a:",
        "\\",
        "+1(",
        "Cookie: a",
        "Cookie: a=\"",
        "token=",
        "token=\"",
        "AB12 3456 7890 ",
        "密码是",
        "%20",
        "%20call%204155550123",
        "%25",
        "%25%30",
        "%E6%89%8B",
        "%E6%89",
        "%2520call%250A4155550123",
        "?token=a1b2c3d4",
        "--password=a1?token=a1b2c3d4",
        "Authorization: abcdefghijk1",
    ] {
        let text = piece.repeat((1 << 15) / piece.len());
        let redacted = redactor.redact(&text, usize::MAX, &mut Counts::new());
        assert!(redacted.text.len() <= 2 * text.len());
    }
}
