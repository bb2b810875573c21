//! The advisor as a whole: what it tells of prompts, by tokens and by text, and its bounds.

use super::{differ::MOST_WORDS, *};
use crate::diagnose::tests::record;
use proptest::prelude::*;
use serde_json::json;

const SECOND: Nanos = 1_000_000_000;

struct Play {
    prefix: Prefix,
    now: Nanos,
}

impl Play {
    fn new(max_bytes: usize) -> Play {
        let config = PrefixConfig {
            enabled: true,
            max_bytes,
            ..PrefixConfig::default()
        };
        Play {
            prefix: Prefix::new(config),
            now: 0,
        }
    }

    /// A request of so many prompt tokens whose engine told hits but not its tokens.
    fn by_text(&mut self, scene: &str, body: &str, tokens: u64, hit: Option<u64>) {
        let mut record = record(1.0, [None; 3]);
        (record.input_tokens, record.cached_input_tokens) = (Some(tokens), hit);
        let labels = labels(scene);
        self.prefix
            .finished(&labels, 1, &record, None, Some(body.as_bytes()));
    }

    fn by_tokens(&mut self, tokens: impl Iterator<Item = u32>, body: Option<&str>, hit: u64) {
        let (shared, _) = self.prefix.given("e", Apart::default(), tokens);
        let mut record = record(1.0, [None; 3]);
        record.cached_input_tokens = Some(hit);
        self.prefix
            .finished(&labels("s"), 1, &record, Some(shared), body.map(str::as_bytes));
    }

    fn told(&mut self) -> Vec<PrefixReport> {
        self.now += SECOND;
        let mut out = Vec::new();
        self.prefix.advance(self.now, &mut out);
        let report = |observation| match observation {
            Observation::Prefix(report) => *report,
            other => panic!("{other:?}"),
        };
        out.into_iter().map(report).collect()
    }
}

fn labels(scene: &str) -> Labels {
    Labels {
        engine: "e".into(),
        model: "m".into(),
        scene: scene.into(),
    }
}

/// Rules that a system prompt has, long enough that losing them is worth telling.
const RULES: &str = "Answer in one sentence. Be exact and kind. Never guess: say that you do not know. Use the units of \
the question. Write numbers with digits. Do not repeat the question. Quote sources when you have them, and name the page.";

fn chat(system: &str, user: &str) -> String {
    json!({"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]})
        .to_string()
}

#[test]
fn a_break_is_named_with_its_place_and_its_cost() {
    for (head, class) in [
        (
            ["Now: 2026-11-30T08:07:54Z.", "Now: 2026-11-30T08:09:12Z."],
            BreakClass::Timestamp,
        ),
        (
            ["Id: 3f2504e04f8911d3.", "Id: 91c2b7aa00d1f0e4."],
            BreakClass::RandomId,
        ),
        (["Try 1.", "Try 2."], BreakClass::Number),
        (["You help Alice.", "You help Bob."], BreakClass::Text),
    ] {
        let mut play = Play::new(1 << 20);
        for head in head {
            play.by_text(
                "s",
                &chat(&format!("You are a clerk. {head} {RULES}"), head),
                100,
                Some(0),
            );
        }
        let told = play.told();
        let [report] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            (report.basis, report.block_tokens, report.requests),
            (PrefixBasis::Text, None, 2)
        );
        let [found] = &report.breaks[..] else {
            panic!("{head:?}: {report:?}")
        };
        assert_eq!(
            (found.class, found.part, found.requests),
            (class, Part::System, 1),
            "{head:?}"
        );
        let same = head[0]
            .chars()
            .zip(head[1].chars())
            .take_while(|(a, b)| a == b)
            .count() as u64;
        assert!(found.character <= 17 + same && found.character >= 17, "{found:?}");
        assert!((40..=90).contains(&found.lost_tokens), "{found:?}");
        assert!(report.shareable_tokens <= 16, "{report:?}");
    }
}

#[test]
fn what_only_goes_on_otherwise_is_no_break() {
    let mut play = Play::new(1 << 20);
    let questions = [
        "What is the tallest hill?",
        "Who was the first to see it?",
        "2026-11-30?",
        "",
    ];
    for question in questions {
        play.by_text("s", &chat(RULES, question), 64, Some(0));
    }
    let told = play.told();
    assert_eq!(told[0].breaks, []);
    assert_eq!((told[0].requests, told[0].shareable_tokens), (4, 3 * 48));
    assert_eq!(told[0].lost_tokens, Some(3 * 48));
}

#[test]
fn tokens_are_compared_where_they_are_told_and_the_break_has_its_token() {
    let mut play = Play::new(1 << 20);
    let body = |time: &str| chat(&format!("It is {time}. {RULES}"), "Why?");
    let tokens = |time: u32| (0..200).map(move |at| if at == 21 { time } else { at });
    play.by_tokens(tokens(1_000_001), Some(&body("08:07")), 0);
    play.by_tokens(tokens(1_000_002), Some(&body("08:09")), 16);
    let told = play.told();
    let [report] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (report.basis, report.block_tokens),
        (PrefixBasis::Tokens, Some(16))
    );
    assert_eq!((report.prompt_tokens, report.shareable_tokens), (400, 16));
    assert_eq!((report.hit_tokens, report.lost_tokens), (Some(16), Some(0)));
    assert_eq!(report.breaks[0].class, BreakClass::Timestamp);
    assert_eq!((report.breaks[0].token, report.breaks[0].character), (21, 9));
    assert!(report.breaks[0].lost_tokens > 100, "{report:?}");
}

#[test]
fn processes_salts_and_adapters_have_caches_of_their_own() {
    let mut play = Play::new(1 << 20);
    let apart = |process, salt, adapter| Apart {
        process,
        salt,
        adapter,
    };
    for (apart, expected) in [
        (apart(1, &b""[..], &b""[..]), 0),
        (apart(1, b"", b""), 64),
        (apart(2, b"", b""), 0),
        (apart(1, b"x", b""), 0),
        (apart(1, b"", b"x"), 0),
        (apart(1, b"x", b""), 64),
    ] {
        assert_eq!(
            play.prefix.given("e", apart, 0..70).0.blocks,
            expected,
            "{apart:?}"
        );
    }
}

#[test]
fn rows_are_told_when_they_change_and_at_most_once_a_second() {
    let mut play = Play::new(1 << 20);
    assert_eq!(play.told(), []);
    play.by_text("a", &chat(RULES, "1"), 50, None);
    play.by_text("b", &chat(RULES, "1"), 50, None);
    assert_eq!(play.told().len(), 2);
    assert_eq!(play.told(), []);
    play.by_text("b", &chat(RULES, "1"), 50, None);
    let mut out = Vec::new();
    play.prefix.advance(play.now + SECOND / 2, &mut out);
    assert_eq!(out.len(), 0);
    play.prefix.advance(Nanos::MAX, &mut out);
    assert_eq!(out.len(), 1, "at the end at once");
}

#[test]
fn further_scenes_count_as_others_and_memory_is_bounded() {
    let mut play = Play::new(16 * 1024);
    for scene in 0..MOST_ROWS + 100 {
        let body = chat(&format!("{scene} {}", "word ".repeat(MOST_WORDS)), "x");
        play.by_text(&scene.to_string(), &body, 3000, Some(0));
    }
    let told = play.told();
    assert_eq!(told.len(), MOST_ROWS + 1);
    let other = told
        .iter()
        .find(|report| &*report.scene == OTHER)
        .expect("others");
    assert_eq!((other.requests, &*other.engine), (100, OTHER));
    assert!(other.forgotten_blocks > 0);
    assert_eq!(play.prefix.heads.len(), MOST_HEADS);
    assert!(play.prefix.bytes() < 4 << 20, "{}", play.prefix.bytes());
}

#[test]
fn it_keeps_nothing_when_it_is_off_or_knows_no_tokens() {
    let mut play = Play::new(1 << 20);
    let mut record = record(1.0, [None; 3]);
    record.input_tokens = None;
    let body = chat(RULES, "x");
    play.prefix
        .finished(&labels("s"), 1, &record, None, Some(body.as_bytes()));
    assert_eq!(play.told(), []);
    play.prefix.config.enabled = false;
    play.by_text("s", &body, 10, None);
    assert_eq!(play.told(), []);
    assert!(play.prefix.heads.is_empty());
}

proptest! {
    #[test]
    fn no_estimate_exceeds_the_prompts(
        requests in proptest::collection::vec(("[ab ]{0,60}", 0_u64..200, proptest::option::of(0_u64..300)), 1..20),
    ) {
        let mut play = Play::new(1 << 16);
        for (text, tokens, hit) in &requests {
            play.by_text("s", &chat(text, "x"), *tokens, *hit);
        }
        for report in play.told() {
            prop_assert!(report.shareable_tokens <= report.prompt_tokens);
            prop_assert!(report.lost_tokens.is_none_or(|lost| lost <= report.shareable_tokens));
            let broken: u64 = report.breaks.iter().map(|one| one.lost_tokens).sum();
            prop_assert!(broken + report.shareable_tokens <= report.prompt_tokens);
        }
    }

    #[test]
    fn the_same_requests_are_told_the_same(texts in proptest::collection::vec("[a-c ]{0,80}", 1..10)) {
        let told = || {
            let mut play = Play::new(1 << 16);
            for text in &texts {
                play.by_text("s", &chat(text, RULES), 90, Some(0));
            }
            play.told()
        };
        prop_assert_eq!(told(), told());
    }
}
