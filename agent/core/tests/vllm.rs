//! A vLLM engine from the inside: what libzmq put on its sockets, joined with the HTTP that its API server spoke.

mod support;
#[path = "support/vllm.rs"]
mod talk;

use infertap_abi::{Role, Transport};
use infertap_core::{
    EngineInfo, Event, EventKind, Observation, Pipeline, PipelineConfig, RequestRecord, Source,
};
use std::sync::Arc;
use support::*;
use talk::*;

#[test]
fn the_engine_tells_queue_prefill_decode_and_tokens() {
    for size in [1, 100, 8192] {
        let out = converse(&mut known("0.32.0+cpu"), true, size, 0);
        let record = only(&out);
        assert_eq!(
            [record.t0_ns, record.t1_ns, record.t2_ns, record.t3_ns],
            [100_400_000_000, 100_750_000_000, 101_000_000_000, 102_500_000_000].map(Some)
        );
        assert_eq!(
            [record.queue_s, record.prefill_s, record.decode_s, record.tpot_s],
            [0.35, 0.25, 1.5, 1.5].map(Some)
        );
        assert_eq!(record.ttft_s, Some(0.701), "what the client saw");
        assert_eq!(
            (
                record.input_tokens,
                record.output_tokens,
                record.cached_input_tokens
            ),
            (Some(54), Some(2), Some(48))
        );
        let sources = record.sources;
        assert_eq!(
            [
                sources.t1,
                sources.t2,
                sources.t3,
                sources.input_tokens,
                sources.output_tokens
            ],
            [Some(Source::Engine); 5]
        );
        assert_eq!(messages_understood(&out), [true]);
        assert_eq!(finished(&out)[0].gaps, [(1.5, 1)], "as the engine timed them");
    }
}

#[test]
fn a_document_has_a_first_token_when_the_engine_tells() {
    let out = converse(&mut known("0.32.0"), false, 8192, 0);
    let record = only(&out);
    assert_eq!(
        [record.ttft_s, record.prefill_s, record.decode_s, record.tpot_s],
        [0.6, 0.25, 1.5, 1.5].map(Some)
    );
    assert_eq!(record.sources.output_tokens, Some(Source::Engine));
}

#[test]
fn the_scheduler_is_told() {
    let out = converse(&mut known("0.32.0"), true, 8192, 0);
    let reports: Vec<_> = out
        .iter()
        .filter_map(|o| match o {
            Observation::Engine(report) => Some(report),
            _ => None,
        })
        .collect();
    assert_eq!(reports.len(), 1);
    let report = reports[0];
    let load = report.load.expect("told");
    assert_eq!(
        (load.running, load.waiting, load.kv_cache_usage),
        (2, 5, Some(0.25))
    );
    assert_eq!(
        (
            report.prefix_queried_tokens,
            report.prefix_hit_tokens,
            report.preemptions
        ),
        (54, 48, 1)
    );
    assert_eq!(
        (&*report.engine, report.model.as_deref()),
        ("vllm-8000", Some("m"))
    );
}

/// What a request that chose its id and was given up before its response began ends as. `status`: of the response.
fn given_up(id: &str, refused: bool) -> RequestRecord {
    let streams = streams();
    let mut pipeline = known("0.32.0");
    let (mut http, mut requests, mut outputs) = (
        Wire::new(socket(7, Role::Accepted, false)),
        unix(8, false),
        unix(9, false),
    );
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let ask = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nX-Request-Id: {id}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    play_on(&mut pipeline, &mut http, &[(99_400, In(text(&ask)))]);
    play_on(&mut pipeline, &mut requests, &[(99_450, Out(streams.requests.1))]);
    play_on(&mut pipeline, &mut outputs, &[(101_600, In(streams.outputs.0))]);
    let mut rows = vec![(101_700, Eof), (101_701, Close)];
    if refused {
        rows.insert(
            0,
            (
                101_650,
                Out(json("400 Bad Request", r#"{"error":{"message":"no"}}"#)),
            ),
        );
    }
    let out = play_on(&mut pipeline, &mut http, &rows);
    only(&out).clone()
}

#[test]
fn a_request_that_chose_its_id_is_joined_before_its_response_shows_it() {
    let chosen = ID.strip_prefix("chatcmpl-").expect("as vLLM makes them");
    let record = given_up(chosen, false);
    assert_eq!(record.status, infertap_core::Status::Cancelled);
    assert_eq!(
        (record.t1_ns, record.input_tokens, record.output_tokens),
        (Some(100_750_000_000), Some(54), Some(2))
    );
    for other in [given_up("another", false), given_up(chosen, true)] {
        assert_eq!((other.t1_ns, other.input_tokens), (None, None));
    }
}

#[test]
fn its_steps_are_told() {
    let mut pipeline = known("0.32.0");
    let mut out = converse(&mut pipeline, true, 8192, 0);
    pipeline.advance(200_000_000_000, &mut out);
    let mut ends: Vec<u64> = out
        .iter()
        .filter_map(|o| match o {
            Observation::Step(step) => {
                // Of two cores, of which neither says who else runs.
                assert_eq!(
                    (step.kind, step.requests, step.source),
                    (None, None, Source::Engine)
                );
                Some(step.end)
            }
            _ => None,
        })
        .collect();
    ends.sort_unstable();
    assert_eq!(ends, [101_000_000_000, 102_500_000_000]);
}

#[test]
fn connections_that_were_open_before_are_joined() {
    // Past the greetings and into the first message.
    let out = converse(&mut known("0.32.0"), true, 300, 150);
    let record = only(&out);
    assert_eq!(
        (record.input_tokens, record.sources.input_tokens),
        (Some(54), Some(Source::Engine))
    );
    assert_eq!(messages_understood(&out), [true]);
}

#[test]
fn with_hooks_off_the_engine_tells_nothing_and_its_links_are_not_read() {
    for (size, skip) in [(8192, 0), (300, 150)] {
        let mut pipeline = Pipeline::new(PipelineConfig {
            engine_hooks: false,
            ..PipelineConfig::default()
        });
        let info = EngineInfo {
            version: Some("0.32.0".into()),
            ..EngineInfo::clone(&engine(Some("m")))
        };
        let at = 0;
        let kind = EventKind::EngineUp(Arc::new(info));
        pipeline.handle(Event { at, kind }, &mut Vec::new());
        let out = converse(&mut pipeline, true, size, skip);
        let record = only(&out);
        // It was alone: that it started at once is inferred.
        assert_eq!(record.sources.t1, Some(Source::Estimate));
        assert_eq!(
            (record.t1_ns, record.queue_s, record.prefill_s),
            (record.t0_ns, Some(0.0), Some(0.701))
        );
        assert_eq!((record.input_tokens, record.output_tokens), (None, Some(2)));
        assert_eq!(
            (record.sources.t2, record.sources.t3, record.sources.output_tokens),
            (Some(Source::Chunk), Some(Source::Chunk), Some(Source::Chunk))
        );
        assert_eq!(messages_understood(&out), [false; 0]);
        let told = render(&out);
        assert!(
            told.contains("ignore 8\n") && told.contains("ignore 9\n"),
            "{told}"
        );
    }
}

#[test]
fn an_unknown_layout_steps_down_and_is_said() {
    let out = converse(&mut known("0.9.2"), false, 8192, 0);
    let record = only(&out);
    assert_eq!(
        (record.t1_ns, record.queue_s, record.sources.t1),
        (record.t0_ns, Some(0.0), Some(Source::Estimate)),
        "it was alone"
    );
    assert_eq!(
        (record.input_tokens, record.sources.input_tokens),
        (Some(54), Some(Source::Usage))
    );
    assert_eq!(record.incomplete, [""; 0]);
    assert_eq!(messages_understood(&out).last(), Some(&false));
    assert!(
        render(&out).contains("anomaly engine_message"),
        "{}",
        render(&out)
    );
}

#[test]
fn http_on_a_unix_socket_is_http() {
    for late in [false, true] {
        let mut wire = unix(7, late);
        let rows = [
            (0, In(ask())),
            (5, Out(stream_head())),
            (9, Out(chunk("data: [DONE]\n\n"))),
        ];
        let out = play_on(&mut known("0.32.0"), &mut wire, &rows);
        assert!(
            matches!(out.first(), Some(Observation::Started(_))),
            "{}",
            render(&out)
        );
    }
}

#[test]
fn a_late_unix_connection_that_turns_out_to_be_http_is_http() {
    let mut wire = unix(7, true);
    let rows = [(0, In(text("rest of some body"))), (5, In(ask()))];
    let out = play_on(&mut known("0.32.0"), &mut wire, &rows);
    assert!(
        matches!(out.first(), Some(Observation::Started(_))),
        "{}",
        render(&out)
    );
}

#[test]
fn the_other_end_of_a_link_is_not_read() {
    let streams = streams();
    let mut socket = socket(8, Role::Connected, false);
    socket.transport = Transport::Unix;
    let out = play_on(
        &mut known("0.32.0"),
        &mut Wire::new(socket),
        &[(0, In(streams.requests.1))],
    );
    assert_eq!(render(&out), "ignore 8\n");
}

#[test]
fn lost_messages_leave_what_is_certain() {
    let streams = streams();
    let mut pipeline = known("0.32.0");
    let (mut http, mut requests, mut outputs) = (
        Wire::new(socket(7, Role::Accepted, false)),
        unix(8, false),
        unix(9, false),
    );
    play_on(&mut pipeline, &mut http, &[(99_400, In(ask()))]);
    play_on(&mut pipeline, &mut requests, &[(99_450, Out(streams.requests.1))]);
    let (seen, lost) = streams.outputs.0.split_at(500);
    play_on(
        &mut pipeline,
        &mut outputs,
        &[(100_000, In(seen.to_vec())), (100_000, LostIn(lost.to_vec()))],
    );
    play_on(&mut pipeline, &mut outputs, &[(101_000, In(vec![0; 40]))]);
    let body = format!(
        r#"{{"id":"{ID}","object":"chat.completion","model":"m","choices":[],"usage":{{"prompt_tokens":54,"completion_tokens":9,"total_tokens":63}}}}"#
    );
    let out = play_on(&mut pipeline, &mut http, &[(101_600, Out(json("200 OK", &body)))]);
    let record = only(&out);
    assert_eq!(
        (record.input_tokens, record.sources.input_tokens),
        (Some(54), Some(Source::Engine))
    );
    assert_eq!(
        (record.output_tokens, record.sources.output_tokens),
        (Some(9), Some(Source::Usage))
    );
    assert_eq!(record.t3_ns, None);
}

#[test]
fn what_is_said_while_an_engine_starts_says_nothing_of_its_layout() {
    let greetings = streams();
    // `{"status": "HELLO"}` and `{"addresses": {}}`, a part each, behind what libzmq says first.
    let framed = |greeting: &[u8], body: &[u8]| {
        let mut bytes = greeting[..greeting.len().min(64)].to_vec();
        bytes.extend([0, u8::try_from(body.len()).expect("short")]);
        bytes.extend(body);
        bytes
    };
    let hello = framed(&greetings.outputs.0, b"\x81\xa6status\xa5HELLO");
    let init = framed(&greetings.requests.1, b"\x81\xa9addresses\x80");
    let rows = [(0, In(hello)), (1, Out(init))];
    let out = play_on(&mut known("0.32.0"), &mut unix(8, false), &rows);
    assert_eq!(render(&out), "");
}

mod hostile {
    //! Whatever the engine's own sockets carry, the request is told in full.

    use super::*;
    use proptest::prelude::*;

    /// What becomes of one piece of a stream.
    #[derive(Debug, Clone)]
    enum Fate {
        Kept,
        Lost,
        Flipped(usize, u8),
        Repeated,
        Swapped,
    }

    fn fates() -> impl Strategy<Value = Vec<Fate>> {
        let fate = prop_oneof![
            6 => Just(Fate::Kept),
            1 => Just(Fate::Lost),
            2 => (any::<usize>(), 1..=255_u8).prop_map(|(at, bits)| Fate::Flipped(at, bits)),
            1 => Just(Fate::Repeated),
            1 => Just(Fate::Swapped),
        ];
        proptest::collection::vec(fate, 1..40)
    }

    fn rows(
        bytes: &[u8],
        size: usize,
        fates: &[Fate],
        step: fn(Vec<u8>) -> Step,
        lost: fn(Vec<u8>) -> Step,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for (piece, fate) in bytes.chunks(size).zip(fates.iter().cycle()) {
            let mut piece = piece.to_vec();
            match fate {
                Fate::Kept => {}
                Fate::Lost => {
                    rows.push((100_000, lost(piece)));
                    continue;
                }
                Fate::Flipped(at, bits) => {
                    let at = at % piece.len();
                    piece[at] ^= bits;
                }
                Fate::Repeated => rows.push((100_000, step(piece.clone()))),
                Fate::Swapped => {
                    let at = rows.len().saturating_sub(1);
                    rows.insert(at, (100_000, step(piece)));
                    continue;
                }
            }
            rows.push((100_000, step(piece)));
        }
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn frames_never_take_the_request_along(
            requests in fates(),
            outputs in fates(),
            size in 1..600_usize,
            late in any::<bool>(),
        ) {
            let streams = streams();
            let mut pipeline = known("0.32.0");
            let (mut http, mut to, mut from) =
                (Wire::new(socket(7, Role::Accepted, false)), unix(8, late), unix(9, late));
            let mut out = play_on(&mut pipeline, &mut http, &[(99_400, In(ask()))]);
            out.extend(play_on(&mut pipeline, &mut to, &rows(&streams.requests.1, size, &requests, Out, LostOut)));
            out.extend(play_on(&mut pipeline, &mut from, &rows(&streams.outputs.0, size, &outputs, In, LostIn)));
            let body = format!(
                r#"{{"id":"{ID}","object":"chat.completion","model":"m","choices":[],"usage":{{"prompt_tokens":54,"completion_tokens":2,"total_tokens":56}}}}"#
            );
            out.extend(play_on(&mut pipeline, &mut http, &[(101_600, Out(json("200 OK", &body)))]));
            pipeline.advance(1 << 60, &mut out);
            check_pairing(&out);
            let record = only(&out);
            prop_assert_eq!(record.status, infertap_core::Status::Ok);
            prop_assert!(record.incomplete.is_empty());
            prop_assert!(record.input_tokens.is_some() && record.output_tokens.is_some());
        }
    }
}
