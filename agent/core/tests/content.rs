//! Content of requests that are under way when other rules come.

mod support;

use infertap_abi::Role;
use infertap_core::{
    Event, EventKind, Pipeline, PipelineConfig,
    content::{Absent, ContentRules, HashKey, Keep, Mode, transcript},
    redact::Redactor,
};
use std::sync::Arc;
use support::*;

const ASK: &str =
    r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"I am bob@example.com"}]}"#;
/// Its model, and so its labels, are known at its end only.
const LATE: &str =
    r#"{"stream":true,"messages":[{"role":"user","content":"I am bob@example.com"}],"model":"m"}"#;

fn keep(mode: Mode) -> Keep {
    Keep {
        mode,
        max_bytes: 1000,
    }
}

fn rules(mode: Mode) -> Arc<ContentRules> {
    Arc::new(ContentRules {
        scenes: Vec::new(),
        others: keep(mode),
    })
}

fn listening(mode: Mode) -> (Pipeline, Wire) {
    let config = PipelineConfig {
        content: rules(mode),
        ..PipelineConfig::default()
    };
    let mut pipeline = Pipeline::new(config);
    let up = EventKind::EngineUp(engine(None));
    pipeline.handle(Event { at: 0, kind: up }, &mut Vec::new());
    let wire = Wire::new(socket(7, Role::Accepted, false));
    let open = EventKind::Open(wire.socket);
    pipeline.handle(Event { at: 1, kind: open }, &mut Vec::new());
    (pipeline, wire)
}

/// What is kept of the prompt of a request whose rule was one, and is another before all of it is there.
fn kept(ask: &str, begin: Mode, then: Mode) -> Option<(Mode, Option<String>)> {
    let (mut pipeline, mut wire) = listening(begin);
    let request = chat(ask);
    let (head, rest) = request.split_at(request.len() - 50);
    let mut out = play_on(&mut pipeline, &mut wire, &[(0, In(head.to_vec()))]);
    let limits = PipelineConfig::default().content_limits;
    pipeline.set_content(rules(then), limits);
    let rest = [
        (10, In(rest.to_vec())),
        (20, Out(stream_head())),
        (30, Out(word())),
        (40, Out([stop(), done(), last_chunk()].concat())),
    ];
    out.extend(play_on(&mut pipeline, &mut wire, &rest));
    let ended = finished(&out);
    let heard = ended[0].content.as_ref()?;
    let allowed = heard.keep(&ended[0].labels.scene, keep(then));
    if allowed.mode == Mode::None {
        return None;
    }
    let made = transcript(heard, allowed, &Redactor::default(), &HashKey([0; 32]));
    let message = made.input.messages.first();
    Some((made.mode, message.map(|message| message.parts[0].content.clone())))
}

#[test]
fn what_both_rules_allow_is_kept() {
    let text = |text: &str| Some(text.to_owned());
    for (begin, then, expected) in [
        (
            Mode::Redacted,
            Mode::Full,
            Some((Mode::Redacted, text("I am [EMAIL]"))),
        ),
        (
            Mode::Full,
            Mode::Redacted,
            Some((Mode::Redacted, text("I am [EMAIL]"))),
        ),
        (Mode::Hash, Mode::Full, Some((Mode::Hash, None))),
        (
            Mode::Full,
            Mode::Full,
            Some((Mode::Full, text("I am bob@example.com"))),
        ),
        (Mode::Full, Mode::None, None),
        (Mode::None, Mode::Full, None),
    ] {
        for ask in [ASK, LATE] {
            assert_eq!(
                kept(ask, begin, then),
                expected,
                "{begin:?}, then {then:?}: {ask}"
            );
        }
    }
}

#[test]
fn an_answer_with_a_message_that_can_not_be_read_is_absent() {
    for (broken, expected) in [
        (word(), None),
        (event("{\"choices\":7}"), Some(Absent::Unreadable)),
    ] {
        let (mut pipeline, mut wire) = listening(Mode::Full);
        let rows = [
            (0, In(chat(ASK))),
            (10, Out(stream_head())),
            (20, Out([word(), broken, word()].concat())),
            (30, Out([stop(), done(), last_chunk()].concat())),
        ];
        let out = play_on(&mut pipeline, &mut wire, &rows);
        let heard = finished(&out)[0].content.clone().expect("content");
        let made = transcript(&heard, keep(Mode::Full), &Redactor::default(), &HashKey([0; 32]));
        assert_eq!(made.output.absent, expected);
        assert_eq!(made.output.messages.is_empty(), expected.is_some());
        assert_eq!(made.input.absent, None);
    }
}
