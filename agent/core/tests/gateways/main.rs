//! Conversations through a gateway: each request counts once, and both sides are joined where that is certain.

mod host;
#[path = "../support/mod.rs"]
mod support;

use host::{Host, SPAN, TRACE, answer, ask, exchanges, joined, near, pass, refusal, traceparent};
use infertap_abi::Direction;
use infertap_core::{
    EventKind, Observation, Status, TraceSource,
    gateway::{GatewayOutcome, JoinedBy},
};
use proptest::prelude::*;
use support::{chunk, json, records, stream_head, text};

#[test]
fn a_request_through_a_gateway_counts_once_and_has_the_gateway_s_part() {
    let (with, without) = (traceparent(), String::new());
    for (name, asked, passed_on, answered, passed_back, by, trace) in [
        // Both sides the same.
        (
            "trace",
            &with,
            &with,
            refusal(),
            refusal(),
            JoinedBy::Trace,
            false,
        ),
        (
            "id",
            &without,
            &without,
            answer("chatcmpl-1"),
            answer("chatcmpl-1"),
            JoinedBy::Response,
            false,
        ),
        (
            "body",
            &without,
            &without,
            refusal(),
            refusal(),
            JoinedBy::Content,
            false,
        ),
        // The gateway keeps the header to itself.
        (
            "kept header",
            &with,
            &without,
            answer("chatcmpl-1"),
            answer("chatcmpl-1"),
            JoinedBy::Response,
            true,
        ),
        // The gateway gives responses ids of its own.
        (
            "own id",
            &with,
            &with,
            answer("chatcmpl-1"),
            answer("other"),
            JoinedBy::Trace,
            false,
        ),
        // It says in its own words what the engine said.
        (
            "own words",
            &without,
            &without,
            refusal(),
            json("502 Bad Gateway", "no"),
            JoinedBy::Content,
            false,
        ),
    ] {
        let mut host = Host::new();
        pass(
            &mut host,
            0,
            &ask(asked, "hi"),
            &ask(passed_on, "hi"),
            &answered,
            &passed_back,
        );
        let out = host.end();
        let started = out
            .iter()
            .filter(|o| matches!(o, Observation::Started(_)))
            .count();
        assert_eq!((started, records(&out).len()), (1, 1), "{name}");
        let record = records(&out)[0];
        assert_eq!(&*record.engine, "vllm-8000", "{name}");
        let all = joined(&out);
        let [joined] = &all[..] else {
            panic!("{name}: {all:?}")
        };
        let part = &joined.part;
        assert_eq!(part.joined_by, by, "{name}");
        assert_eq!(format!("{:016x}", joined.request), record.id, "{name}");
        assert_eq!(&*part.name, "nginx-8080", "{name}");
        assert!(
            near(part.before_s, 0.005) && near(part.after_s, 0.003),
            "{name}: {part:?}"
        );
        assert!(part.t0_ns <= record.t0_ns && part.t4_ns >= record.t4_ns, "{name}");
        assert_eq!(joined.trace.is_some(), trace, "{name}");
        if let Some(trace) = &joined.trace {
            let parent = trace.parent_span_id.as_deref();
            assert_eq!(
                (&*trace.id, trace.source, parent),
                (TRACE, TraceSource::Traceparent, Some(SPAN))
            );
        }
        assert_eq!(
            part.parent_span_id.as_deref(),
            (!asked.is_empty()).then_some(SPAN),
            "{name}"
        );
        let all = exchanges(&out);
        let [exchange] = &all[..] else {
            panic!("{name}: {all:?}")
        };
        assert_eq!(
            (exchange.outcome, &exchange.id),
            (GatewayOutcome::Joined, &part.id),
            "{name}"
        );
    }
}

#[test]
fn nothing_is_joined_that_could_be_meant_otherwise() {
    // Two at once, which nothing tells apart.
    let mut host = Host::new();
    let wires = [
        host.connect(true),
        host.connect(true),
        host.connect(false),
        host.connect(false),
    ];
    for (ms, wire) in (0..).zip(wires) {
        host.read(ms, wire, &ask("", "hi"));
    }
    for (ms, wire) in (50..).zip(wires.into_iter().rev()) {
        host.write(ms, wire, &refusal());
    }
    let out = host.end();
    assert!(joined(&out).is_empty());
    let outcomes: Vec<_> = exchanges(&out).iter().map(|exchange| exchange.outcome).collect();
    assert_eq!(outcomes, [GatewayOutcome::Ambiguous; 2]);

    // One of them by way of the gateway, the other not.
    let mut host = Host::new();
    let wires = [host.connect(true), host.connect(false), host.connect(false)];
    for (ms, wire) in (0..).zip(wires) {
        host.read(ms, wire, &ask("", "hi"));
    }
    for (ms, wire) in (50..).zip(wires.into_iter().rev()) {
        host.write(ms, wire, &refusal());
    }
    let out = host.end();
    assert!(joined(&out).is_empty());
    assert_eq!(exchanges(&out)[0].outcome, GatewayOutcome::Ambiguous);

    // Another request of the same trace, past the gateway, while one is served by way of it.
    let mut host = Host::new();
    let (client, engine, other) = (host.connect(true), host.connect(false), host.connect(false));
    host.read(0, client, &ask(&traceparent(), "hi"));
    host.read(1, engine, &ask(&traceparent(), "hi"));
    host.read(2, other, &ask(&traceparent(), "more"));
    host.write(50, other, &answer("chatcmpl-2"));
    host.write(60, engine, &answer("chatcmpl-1"));
    host.write(61, client, &answer("chatcmpl-1"));
    let out = host.end();
    let id = |id: &str| {
        records(&out)
            .iter()
            .find(|r| r.response_id.as_deref() == Some(id))
            .map(|r| r.id.clone())
    };
    let requests: Vec<_> = joined(&out)
        .iter()
        .map(|joined| format!("{:016x}", joined.request))
        .collect();
    assert_eq!(
        Some(&*requests),
        id("chatcmpl-1").as_ref().map(std::slice::from_ref)
    );
}

#[test]
fn ids_of_responses_tell_apart_what_is_the_same_otherwise() {
    let mut host = Host::new();
    let clients = [host.connect(true), host.connect(true)];
    let engines = [host.connect(false), host.connect(false)];
    for (ms, wire) in (0..).zip(clients.into_iter().chain(engines)) {
        host.read(ms, wire, &ask(&traceparent(), "hi"));
    }
    // The second is answered first.
    for (ms, at) in [(50, 1), (60, 0)] {
        host.write(ms, engines[at], &answer(&format!("chatcmpl-{at}")));
        host.write(ms + 1, clients[1 - at], &answer(&format!("chatcmpl-{at}")));
    }
    let out = host.end();
    let joined = joined(&out);
    assert!(
        joined
            .iter()
            .all(|joined| joined.part.joined_by == JoinedBy::Response)
    );
    let of = |at: usize| {
        let record = records(&out)
            .into_iter()
            .find(|r| r.response_id == Some(format!("chatcmpl-{at}")))?;
        let joined = joined
            .iter()
            .find(|joined| format!("{:016x}", joined.request) == record.id)?;
        joined.part.t0_ns
    };
    assert_eq!((of(0), of(1)), (Some(1_001_000_000), Some(1_000_000_000)));
}

#[test]
fn a_second_try_is_the_same_exchange_s() {
    let mut host = Host::new();
    let (client, first, second) = (host.connect(true), host.connect(false), host.connect(false));
    host.read(0, client, &ask("", "hi"));
    host.read(2, first, &ask("", "hi"));
    host.write(10, first, &refusal());
    host.read(12, second, &ask("", "hi"));
    host.write(50, second, &answer("chatcmpl-1"));
    host.write(51, client, &answer("chatcmpl-1"));
    let out = host.end();
    let mut by: Vec<_> = joined(&out).iter().map(|joined| joined.part.joined_by).collect();
    by.sort();
    assert_eq!(by, [JoinedBy::Response, JoinedBy::Content]);
    assert_eq!(exchanges(&out).len(), 1);
}

#[test]
fn what_a_gateway_answers_alone_is_told_as_such() {
    for (status, expected) in [
        ("502 Bad Gateway", Status::ServerError),
        ("504 Gateway Time-out", Status::Timeout),
        ("429 Too Many Requests", Status::ClientError),
    ] {
        let mut host = Host::new();
        let client = host.connect(true);
        host.read(0, client, &ask("", "hi"));
        host.write(
            5,
            client,
            &text(format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno"
            )),
        );
        let out = host.end();
        assert!(records(&out).is_empty() && joined(&out).is_empty());
        let exchange = exchanges(&out)[0];
        assert_eq!(
            (exchange.outcome, exchange.status),
            (GatewayOutcome::NoEngine, expected)
        );
    }
}

#[test]
fn a_client_that_goes_is_the_gateway_s_first() {
    for seen in [true, false] {
        let mut host = Host::new();
        let (client, engine) = (host.connect(true), host.connect(false));
        host.read(0, client, &ask("", "hi"));
        host.read(2, engine, &ask("", "hi"));
        for (ms, wire) in [(10, engine), (11, client)] {
            host.write(ms, wire, &stream_head());
            host.write(ms, wire, &chunk("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n"));
        }
        host.close(20, client, seen);
        host.close(21, engine, true);
        let out = host.end();
        assert_eq!(records(&out)[0].status, Status::Cancelled);
        let joined = joined(&out);
        assert_eq!(joined.len(), 1);
        assert_eq!(
            (joined[0].part.status, joined[0].part.joined_by),
            (Status::Cancelled, JoinedBy::Response)
        );
    }
}

#[test]
fn without_a_gateway_nothing_is_told() {
    let mut host = Host::new();
    host.handle(
        0,
        EventKind::EngineDown {
            engine: "nginx-8080".into(),
        },
    );
    pass(
        &mut host,
        0,
        &ask("", "hi"),
        &ask("", "hi"),
        &answer("a"),
        &answer("a"),
    );
    let out = host.end();
    assert!(joined(&out).is_empty() && exchanges(&out).is_empty());
}

proptest! {
    /// However the bytes were split, and whoever was first, the same is joined, each at most once, and times nest.
    #[test]
    fn many_at_once(
        requests in proptest::collection::vec((0u64..50, 1u64..20, 1u64..100, 0u64..10, 0u8..3, any::<bool>()), 1..12),
        split in 1usize..200,
    ) {
        let run = |split: usize| {
            let mut host = Host::new();
            host.split = split;
            let mut steps = Vec::new();
            for (at, &(begin, before, length, after, kind, header)) in requests.iter().enumerate() {
                let headers = if header { traceparent() } else { String::new() };
                let content = ["hi".to_owned(), format!("hi {at}")][usize::from(kind > 0)].clone();
                let reply = if kind == 2 { answer(&format!("chatcmpl-{at}")) } else { refusal() };
                let (client, engine) = (host.connect(true), host.connect(false));
                let asked = ask(&headers, &content);
                let sent = begin + before;
                steps.extend([
                    (begin, client, Direction::In, asked.clone()),
                    (sent, engine, Direction::In, asked),
                    (sent + length, engine, Direction::Out, reply.clone()),
                    (sent + length + after, client, Direction::Out, reply),
                ]);
            }
            steps.sort_by_key(|step| step.0);
            for (ms, wire, direction, bytes) in steps {
                host.data(ms, wire, direction, &bytes);
            }
            host.end()
        };
        let out = run(usize::MAX);
        let told = |out: &[Observation]| {
            let mut told: Vec<String> = out
                .iter()
                .filter(|o| matches!(o, Observation::Joined(_) | Observation::Gateway(_)))
                .map(|o| format!("{o:?}"))
                .collect();
            told.sort();
            told
        };
        prop_assert_eq!(told(&out), told(&run(split)));
        prop_assert_eq!(records(&out).len(), requests.len());
        prop_assert_eq!(exchanges(&out).len(), requests.len());
        let mut ids: Vec<u64> = joined(&out).iter().map(|joined| joined.request).collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        prop_assert_eq!(ids.len(), all);
        for joined in joined(&out) {
            let id = format!("{:016x}", joined.request);
            let record = records(&out).into_iter().find(|record| record.id == id).expect("a request");
            prop_assert!(joined.part.t0_ns <= record.t0_ns && joined.part.t4_ns >= record.t4_ns);
            // The client's exchange that is behind it is that of the same index, unless nothing told them apart.
            if joined.part.joined_by == JoinedBy::Response {
                let exchange = exchanges(&out).into_iter().find(|exchange| exchange.id == joined.part.id);
                prop_assert_eq!(&exchange.expect("told").response_id, &record.response_id);
            }
        }
        // What has an id of its own is always joined.
        let with_id = requests.iter().filter(|request| request.4 == 2).count();
        prop_assert_eq!(joined(&out).iter().filter(|joined| joined.part.joined_by == JoinedBy::Response).count(), with_id);
    }
}
