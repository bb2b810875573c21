//! Scenes over whole conversations: when a request is told as started, and under which scene.

mod support;

use infertap_abi::Role;
use infertap_core::{
    Event, EventKind, Observation, Pipeline, PipelineConfig,
    client::Proxies,
    pods::{Pod, PodChange, PodState, Workload},
    scene::{RuleText, SceneRules},
};
use std::sync::Arc;
use support::*;

fn rules(texts: &[RuleText<'_>]) -> Arc<SceneRules> {
    let rules = texts.iter().map(|text| text.rule().expect("sound")).collect();
    Arc::new(SceneRules::new(rules).expect("sound"))
}

fn by_app() -> Arc<SceneRules> {
    rules(&[RuleText {
        from: Some("body:metadata.app"),
        ..RuleText::default()
    }])
}

fn with(scenes: Arc<SceneRules>) -> Pipeline {
    Pipeline::new(PipelineConfig {
        scenes,
        ..PipelineConfig::default()
    })
}

fn play_with(pipeline: &mut Pipeline, conn: u64, rows: &[Row]) -> Vec<Observation> {
    let socket = socket(conn, Role::Accepted, false);
    let mut out = Vec::new();
    let open = Event {
        at: 1_000_000_000,
        kind: EventKind::Open(socket),
    };
    pipeline.handle(open, &mut out);
    out.extend(play_on(pipeline, &mut Wire::new(socket), rows));
    check_pairing(&out);
    out
}

/// `started S` and `finished S`, in order.
fn told(out: &[Observation]) -> Vec<String> {
    out.iter()
        .filter_map(|o| match o {
            Observation::Started(labels) => Some(format!("started {}", labels.scene)),
            Observation::Finished(finished) => Some(format!("finished {}", finished.record.scene)),
            _ => None,
        })
        .collect()
}

fn answer() -> Vec<Row> {
    vec![
        (10, Out(stream_head())),
        (20, Out(word())),
        (30, Out(stop())),
        (30, Out(done())),
        (31, Out(last_chunk())),
    ]
}

#[test]
fn a_request_starts_when_its_scene_is_certain() {
    let long = "x".repeat(3_000_000);
    let body = format!(
        r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":"{long}"}}],"metadata":{{"app":"chat"}}}}"#
    );
    let bytes = chat(&body);
    let (first, last) = bytes.split_at(2_000_000);
    let mut pipeline = with(by_app());
    let early = play_with(&mut pipeline, 1, &[(0, In(text(first)))]);
    assert_eq!(told(&early), [""; 0], "the scene comes last");
    let mut wire = Wire::new(socket(1, Role::Accepted, false));
    wire.read = first.len() as u64;
    let mut rows = vec![(1, In(text(last)))];
    rows.extend(answer());
    let out = play_on(&mut pipeline, &mut wire, &rows);
    assert_eq!(told(&out), ["started chat", "finished chat"]);
}

#[test]
fn what_the_head_decides_needs_no_body() {
    let header = ["x-team=search".to_owned()];
    let by_header = RuleText {
        name: Some("search"),
        header: &header,
        ..RuleText::default()
    };
    let request = post(
        "/v1/chat/completions",
        "X-Team: search\r\n",
        r#"{"model":"m","messages":[],"stream":true}"#,
    );
    let (first, _) = request.split_at(request.len() - 20);
    let out = play_with(&mut with(rules(&[by_header])), 1, &[(0, In(text(first)))]);
    assert_eq!(told(&out), ["started search"]);
}

#[test]
fn an_answer_or_an_end_decides_without_the_rest() {
    let request =
        chat(r#"{"model":"m","messages":[{"role":"user","content":"hello"}],"metadata":{"app":"a"}}"#);
    let (first, _) = request.split_at(request.len() - 30);
    let refusal = json(
        "413 Payload Too Large",
        r#"{"error":{"message":"too long","code":413}}"#,
    );
    let rows = [(0, In(text(first))), (5, Out(refusal)), (6, Close)];
    let out = play_with(&mut with(by_app()), 1, &rows);
    assert_eq!(told(&out), ["started default", "finished default"]);
    let rows = [(0, In(text(first))), (5, Eof), (6, Close)];
    let out = play_with(&mut with(by_app()), 1, &rows);
    assert_eq!(told(&out), ["started default", "finished default"]);
}

#[test]
fn a_response_without_its_request_is_of_the_default_scene() {
    let mut pipeline = with(by_app());
    let mut wire = Wire::new(socket(1, Role::Unknown, true));
    let rows = [(0, Out(word())), (1, Out(word())), (2, Out(done())), (3, Close)];
    let out = play_on(&mut pipeline, &mut wire, &rows);
    assert_eq!(told(&out), ["started default", "finished default"]);
}

#[test]
fn other_rules_are_for_requests_that_begin_after_them() {
    let request = || chat(r#"{"model":"m","messages":[],"stream":true,"metadata":{"app":"a","team":"t"}}"#);
    let mut pipeline = with(by_app());
    let head_only = request()[..60].to_vec();
    let mut out = play_with(&mut pipeline, 1, &[(0, In(head_only.clone()))]);
    // The head must be complete for the request to have begun.
    let mut wire = Wire::new(socket(1, Role::Accepted, false));
    wire.read = head_only.len() as u64;
    let rest = request()[60..].to_vec();
    let (head_rest, body) = rest.split_at(rest.len() - 40);
    out.extend(play_on(&mut pipeline, &mut wire, &[(1, In(text(head_rest)))]));
    pipeline.set_scenes(rules(&[RuleText {
        from: Some("body:metadata.team"),
        ..RuleText::default()
    }]));
    let mut rows = vec![(2, In(text(body)))];
    rows.extend(answer());
    out.extend(play_on(&mut pipeline, &mut wire, &rows));
    assert_eq!(told(&out), ["started a", "finished a"]);
    let mut rows = vec![(0, In(request()))];
    rows.extend(answer());
    let out = play_with(&mut pipeline, 2, &rows);
    assert_eq!(told(&out), ["started t", "finished t"]);
}

/// A connection whose other end is told, and the requests on it: `client scene` of each.
fn asked_from(
    pipeline: &mut Pipeline,
    conn: u64,
    peer: Option<&str>,
    late: bool,
    rows: &[Row],
) -> Vec<String> {
    let socket = socket(conn, Role::Accepted, late);
    let mut out = Vec::new();
    if let Some(peer) = peer {
        let told = Event {
            at: 1_000_000_000,
            kind: EventKind::Peer {
                socket,
                address: peer.parse().expect("an address"),
                offset: 0,
            },
        };
        pipeline.handle(told, &mut out);
    }
    out.extend(play_on(pipeline, &mut Wire::new(socket), rows));
    // What was not seen to its end is given up.
    pipeline.advance(1 << 60, &mut out);
    out.iter()
        .filter_map(|o| match o {
            Observation::Finished(finished) => {
                let record = &finished.record;
                let client = record.client.map_or("-".to_owned(), |client| client.to_string());
                Some(format!("{client} {}", record.scene))
            }
            _ => None,
        })
        .collect()
}

fn request(headers: &str) -> Row {
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    (0, In(text(format!("{head}{body}").as_bytes())))
}

#[test]
fn a_request_knows_who_asked() {
    let internal = ["10.0.0.0/8".to_owned(), "::1".to_owned()];
    let scenes = rules(&[
        RuleText {
            name: Some("internal"),
            client: &internal,
            ..RuleText::default()
        },
        RuleText {
            from: Some("client"),
            ..RuleText::default()
        },
    ]);
    let proxies = Proxies::new(vec!["10.9.0.0/16".parse().expect("a network")], "X-Forwarded-For");
    let mut pipeline = Pipeline::new(PipelineConfig {
        scenes,
        proxies: Arc::new(proxies),
        ..PipelineConfig::default()
    });
    let forwarded = "x-forwarded-for: 203.0.113.9\r\n";
    for (conn, (peer, headers, expected)) in (1..).zip([
        (Some("10.0.0.1"), "", "10.0.0.1 internal"),
        (Some("::ffff:10.0.0.1"), "", "10.0.0.1 internal"),
        (Some("::1"), "", "::1 internal"),
        (Some("192.0.2.1"), "", "192.0.2.1 192.0.2.1"),
        (Some("192.0.2.1"), forwarded, "192.0.2.1 192.0.2.1"),
        (Some("10.9.0.1"), forwarded, "203.0.113.9 203.0.113.9"),
        (Some("10.9.0.1"), "x-forwarded-for: unknown\r\n", "- default"),
        (None, forwarded, "- default"),
    ]) {
        let mut rows = vec![request(headers)];
        rows.extend(answer());
        assert_eq!(
            asked_from(&mut pipeline, conn, peer, false, &rows),
            [expected],
            "{peer:?} {headers}"
        );
    }
}

#[test]
fn each_request_of_a_proxy_s_connection_has_its_own_client() {
    let proxies = Proxies::new(vec!["10.9.0.0/16".parse().expect("a network")], "X-Forwarded-For");
    let mut pipeline = Pipeline::new(PipelineConfig {
        proxies: Arc::new(proxies),
        ..PipelineConfig::default()
    });
    let mut rows = Vec::new();
    for client in 1..=3 {
        rows.push(request(&format!("x-forwarded-for: 203.0.113.{client}\r\n")));
        rows.extend(answer());
    }
    let clients = asked_from(&mut pipeline, 1, Some("10.9.0.1"), false, &rows);
    assert_eq!(
        clients,
        [
            "203.0.113.1 default",
            "203.0.113.2 default",
            "203.0.113.3 default"
        ]
    );
    // Joined in the middle of a response: who asked is the other end, unless that is a proxy.
    for (conn, peer, expected) in [
        (2, "192.0.2.1", "192.0.2.1 default"),
        (3, "10.9.0.1", "- default"),
    ] {
        let rows = [(0, Out(word())), (10, Out(stop())), (10, Out(done()))];
        assert_eq!(
            asked_from(&mut pipeline, conn, Some(peer), true, &rows),
            [expected]
        );
    }
}

/// The pod at 10.0.0.1, as it is told.
fn pod_at(name: &str, started: i64) -> PodChange {
    PodChange::Present {
        source: 0,
        state: PodState {
            pod: Pod {
                namespace: "jobs".into(),
                name: name.into(),
                workload: Some(Workload {
                    kind: "Job".into(),
                    name: "nightly".into(),
                }),
                labels: vec![("team".into(), "ads".into())],
            },
            addresses: vec!["10.0.0.1".parse().expect("an address")],
            started,
            host_network: false,
            finished: false,
        },
    }
}

#[test]
fn a_request_knows_the_pod_that_asked() {
    let pattern = ["batch-*".to_owned()];
    let mut pipeline = with(rules(&[
        RuleText {
            name: Some("batch"),
            client_pod: &pattern,
            ..RuleText::default()
        },
        RuleText {
            from: Some("client_label:team"),
            ..RuleText::default()
        },
    ]));
    let tell = |pipeline: &mut Pipeline, change: &PodChange| {
        let kind = EventKind::Pod(change);
        pipeline.handle(
            Event {
                at: 900_000_000,
                kind,
            },
            &mut Vec::new(),
        );
    };
    let told = |pipeline: &mut Pipeline, conn: u64, peer: &str| {
        let mut rows = vec![request("")];
        rows.extend(answer());
        let socket = socket(conn, Role::Accepted, false);
        let peer = EventKind::Peer {
            socket,
            address: peer.parse().expect("an address"),
            offset: 0,
        };
        let mut out = Vec::new();
        pipeline.handle(
            Event {
                at: 1_000_000_000,
                kind: peer,
            },
            &mut out,
        );
        out.extend(play_on(pipeline, &mut Wire::new(socket), &rows));
        let finished = out.iter().find_map(|o| match o {
            Observation::Finished(finished) => Some(finished.record.clone()),
            _ => None,
        });
        let record = finished.expect("a record");
        let parts = [
            record.client_namespace,
            record.client_pod,
            record.client_workload_kind,
            record.client_workload,
            Some(record.scene),
        ];
        parts
            .map(|part| part.map_or("-".to_owned(), |part| part.to_string()))
            .join(" ")
    };
    assert_eq!(
        told(&mut pipeline, 1, "10.0.0.1"),
        "- - - - default",
        "nothing is known of pods"
    );
    tell(&mut pipeline, &pod_at("batch-7", 10));
    assert_eq!(
        told(&mut pipeline, 2, "10.0.0.1"),
        "jobs batch-7 Job nightly batch"
    );
    assert_eq!(told(&mut pipeline, 3, "10.0.0.2"), "- - - - default");
    tell(&mut pipeline, &pod_at("other-1", 20));
    assert_eq!(told(&mut pipeline, 4, "10.0.0.1"), "jobs other-1 Job nightly ads");
    assert_eq!(pipeline.stats().pods.pods, 2);
}
