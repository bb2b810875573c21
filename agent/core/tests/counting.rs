//! Requests whose engine and response tell no count: what is asked for, and what becomes of their records.

mod support;

use infertap_abi::Role;
use infertap_core::{
    CountJob, CountOutcome, Counted, Event, EventKind, Observation, Pipeline, PipelineConfig, RequestRecord,
    Source,
};
use support::*;

const MS: u64 = 1_000_000;

fn counting() -> (Pipeline, Wire) {
    let mut pipeline = Pipeline::new(PipelineConfig {
        count: true,
        ..PipelineConfig::default()
    });
    let up = EventKind::EngineUp(engine(None));
    pipeline.handle(Event { at: 0, kind: up }, &mut Vec::new());
    let wire = Wire::new(socket(7, Role::Accepted, false));
    let open = EventKind::Open(wire.socket);
    pipeline.handle(Event { at: 1, kind: open }, &mut Vec::new());
    (pipeline, wire)
}

fn asking(body: &str) -> Vec<Row> {
    vec![
        (0, In(chat(body))),
        (10, Out(stream_head())),
        (20, Out([role(), word()].concat())),
        (30, Out(word())),
    ]
}

const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two six"}]}"#;

fn jobs(out: &[Observation]) -> Vec<&CountJob> {
    out.iter()
        .filter_map(|o| match o {
            Observation::Count(job) => Some(&**job),
            _ => None,
        })
        .collect()
}

fn outcomes(out: &[Observation]) -> Vec<CountOutcome> {
    out.iter()
        .filter_map(|o| match o {
            Observation::TokenCount(outcome) => Some(*outcome),
            _ => None,
        })
        .collect()
}

fn told(out: &[Observation]) -> u64 {
    out.iter()
        .map(|o| match o {
            Observation::Tokens { count, .. } => *count,
            _ => 0,
        })
        .sum()
}

fn answer(pipeline: &mut Pipeline, counted: Counted) -> Vec<Observation> {
    let mut out = Vec::new();
    let kind = EventKind::Counted(counted);
    pipeline.handle(Event { at: 1_100 * MS, kind }, &mut out);
    out
}

fn counts(record: &RequestRecord) -> [Option<(u64, Source)>; 2] {
    let sources = &record.sources;
    [
        record.input_tokens.zip(sources.input_tokens),
        record.output_tokens.zip(sources.output_tokens),
    ]
}

#[test]
fn a_record_waits_for_its_count_and_counters_only_grow() {
    let (mut pipeline, mut wire) = counting();
    let mut out = play_on(&mut pipeline, &mut wire, &asking(STREAM));
    out.extend(play_on(
        &mut pipeline,
        &mut wire,
        &[(40, Out([stop(), done(), last_chunk()].concat()))],
    ));
    assert!(records(&out).is_empty(), "it waits");
    let asked = jobs(&out);
    let [job] = asked[..] else { panic!("{asked:?}") };
    assert!(job.input && job.output);
    assert_eq!(job.content.request(), STREAM.as_bytes());
    assert_eq!(job.content.protocol(), "openai_chat");
    assert_eq!(job.content.texts().count(), 1);
    let counted = Counted {
        id: job.id,
        input: Some((31, Source::Tokenizer)),
        output: Some((7, Source::Tokenizer)),
        outcome: CountOutcome::Counted,
    };
    assert_eq!(told(&out), 2, "the chunks, while it streamed");
    let after = answer(&mut pipeline, counted);
    let finished = records(&after);
    assert_eq!(
        counts(finished[0]),
        [Some((31, Source::Tokenizer)), Some((7, Source::Tokenizer))]
    );
    assert_eq!(told(&after), 31 + 5);
    assert_eq!(outcomes(&after), [CountOutcome::Counted]);
    let decode = finished[0].decode_s.expect("two chunks");
    let tpot = finished[0].tpot_s.expect("two chunks");
    assert!(
        (tpot - decode / 6.0).abs() < 1e-9,
        "of the count that the record has"
    );
    assert!(answer(&mut pipeline, counted).is_empty(), "answered once");
    out.extend(after);
    check_pairing(&out);
}

#[test]
fn what_is_counted_in_the_text_never_takes_tokens_away() {
    let (mut pipeline, mut wire) = counting();
    let mut rows = asking(STREAM);
    rows.push((40, Out([stop(), done(), last_chunk()].concat())));
    let out = play_on(&mut pipeline, &mut wire, &rows);
    let counted = Counted {
        id: jobs(&out)[0].id,
        input: None,
        output: Some((1, Source::Tokenizer)),
        outcome: CountOutcome::Unsupported,
    };
    let after = answer(&mut pipeline, counted);
    assert_eq!(counts(records(&after)[0]), [None, Some((2, Source::Chunk))]);
    assert_eq!(told(&after), 0);
}

#[test]
fn a_count_that_does_not_come_is_estimated() {
    let (mut pipeline, mut wire) = counting();
    let mut rows = asking(STREAM);
    // The client goes: what was used until then is paid for.
    rows.extend([(40, Eof), (41, Close), (2_000, Advance)]);
    let out = play_on(&mut pipeline, &mut wire, &rows);
    assert!(records(&out).is_empty());
    let after = play_on(&mut pipeline, &mut wire, &[(2_050, Advance)]);
    let record = records(&after)[0];
    assert_eq!(record.status, infertap_core::Status::Cancelled);
    assert_eq!(
        counts(record),
        [Some((10, Source::Estimate)), Some((2, Source::Chunk))]
    );
    assert_eq!(outcomes(&after), [CountOutcome::Late]);
    assert_eq!(pipeline.stats().in_flight, 0);
}

#[test]
fn nothing_is_asked_where_the_response_tells_or_nothing_was_served() {
    let included = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"x"}]}"#;
    let mut with_usage = asking(included);
    with_usage.push((40, Out([stop(), usage(3, 2), done(), last_chunk()].concat())));
    let document = json(
        "200 OK",
        r#"{"id":"x","object":"chat.completion","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#,
    );
    let refusal = json("400 Bad Request", r#"{"error":{"message":"no","code":400}}"#);
    for (name, rows) in [
        ("usage in the stream", with_usage),
        ("a document", vec![(0, In(chat(STREAM))), (10, Out(document))]),
        ("a refusal", vec![(0, In(chat(STREAM))), (10, Out(refusal))]),
    ] {
        let (mut pipeline, mut wire) = counting();
        let out = play_on(&mut pipeline, &mut wire, &rows);
        assert_eq!(records(&out).len(), 1, "{name}");
        assert!(jobs(&out).is_empty() && outcomes(&out).is_empty(), "{name}");
    }
    // With usage asked for and the client gone before, only the prompt is unknown.
    let (mut pipeline, mut wire) = counting();
    let mut rows = asking(included);
    rows.extend([(40, Eof), (41, Close)]);
    let out = play_on(&mut pipeline, &mut wire, &rows);
    let asked = jobs(&out);
    assert!(asked[0].input && !asked[0].output);
}

#[test]
fn what_was_not_seen_or_is_too_large_is_told_and_absent() {
    let end = (40, Out([stop(), done(), last_chunk()].concat()));
    let whole = chat(STREAM);
    let (first, rest) = whole.split_at(whole.len() - 20);
    let lost = vec![
        (0, In(first.to_vec())),
        (1, LostIn(rest[..10].to_vec())),
        (2, In(rest[10..].to_vec())),
        (10, Out(stream_head())),
        (20, Out([role(), word()].concat())),
        end.clone(),
    ];
    let large = STREAM.replace("one", &"x".repeat(70_000));
    let mut large = asking(&large);
    large.push(end);
    for (rows, outcome) in [(lost, CountOutcome::Incomplete), (large, CountOutcome::TooLarge)] {
        let mut pipeline = Pipeline::new(PipelineConfig {
            count: true,
            count_request_bytes: 64 * 1024,
            ..PipelineConfig::default()
        });
        let mut wire = Wire::new(socket(7, Role::Accepted, false));
        let open = EventKind::Open(wire.socket);
        pipeline.handle(Event { at: 1, kind: open }, &mut Vec::new());
        let out = play_on(&mut pipeline, &mut wire, &rows);
        assert_eq!(outcomes(&out), [outcome]);
        assert_eq!(records(&out)[0].input_tokens, None);
    }
}

#[test]
fn without_anybody_who_counts_nothing_is_kept_and_records_do_not_wait() {
    let mut rows = asking(STREAM);
    rows.push((40, Out([stop(), done(), last_chunk()].concat())));
    let out = play(&rows);
    assert_eq!(counts(records(&out)[0]), [None, Some((2, Source::Chunk))]);
    assert!(jobs(&out).is_empty() && outcomes(&out).is_empty());
}
