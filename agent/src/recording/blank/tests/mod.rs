//! Properties of blanking: no length changes, the core finds the same messages, and nothing secret is left, however the
//! bytes are split.

mod conversations;
mod links;

use super::*;
use conversations::{Exchange, Plan, SECRETS, exchange, plan, text};
use infertap_abi::Transport;
use infertap_core::wire::http1::{Decoder, Head, HttpEvent};
use infertap_core::{Event, Observation, Pipeline, PipelineConfig, RequestRecord};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A piece of a direction: record bytes.
fn record(
    direction: Direction,
    role: Role,
    flags: u16,
    offset: usize,
    len: usize,
    captured: &[u8],
) -> Vec<u8> {
    let header = RecordHeader {
        conn_id: 9,
        offset: offset as u64,
        kind: RecordKind::Data as u16,
        flags,
        captured: captured.len() as u32,
        len: len as u32,
        dir_role: RecordHeader::pack(direction as u8, role as u8),
        ..Default::default()
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(captured);
    bytes
}

/// Cuts both directions into records; `sizes` is used over and over.
fn records(exchanges: &[Exchange], role: Role, flags: u16, pipelined: bool, sizes: &[usize]) -> Vec<Vec<u8>> {
    let (asks, answers) = match role {
        Role::Connected => (Direction::Out, Direction::In),
        _ => (Direction::In, Direction::Out),
    };
    let mut streams: Vec<(Direction, &[u8])> = Vec::new();
    for exchange in exchanges {
        streams.push((asks, &exchange.request));
        streams.push((answers, &exchange.response));
    }
    if pipelined {
        streams.sort_by_key(|(direction, _)| *direction != asks);
    }
    let mut offsets = [0; 3];
    let mut sizes = sizes.iter().copied().cycle();
    let mut out = Vec::new();
    for (direction, mut bytes) in streams {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(sizes.next().unwrap_or(1000).min(bytes.len()));
            let offset = &mut offsets[direction as usize];
            out.push(record(direction, role, flags, *offset, piece.len(), piece));
            *offset += piece.len();
            bytes = rest;
        }
    }
    out
}

/// What the core makes of the records.
fn told(records: &[Vec<u8>], role: Role) -> (Vec<RequestRecord>, Vec<String>) {
    let mut pipeline = Pipeline::new(PipelineConfig::default());
    let mut out = Vec::new();
    let control = |kind: RecordKind, at| {
        let header = RecordHeader {
            ts_ns: at,
            conn_id: 9,
            tgid: 42,
            kind: kind as u16,
            dir_role: RecordHeader::pack(0, role as u8),
            transport: Transport::Tcp as u8,
            ..Default::default()
        };
        header.to_bytes()
    };
    let open = control(RecordKind::Open, 1);
    let close = control(RecordKind::Close, u64::MAX >> 1);
    let all = std::iter::once(&open[..])
        .chain(records.iter().map(|r| &r[..]))
        .chain(std::iter::once(&close[..]));
    for record in all {
        pipeline.handle(Event::decode(record).expect("decodes"), &mut out);
    }
    let mut requests = Vec::new();
    let mut anomalies = Vec::new();
    for observation in out {
        match observation {
            Observation::Finished(finished) => requests.push(finished.record),
            Observation::Anomaly { kind, count } => anomalies.push(format!("{kind:?} {count}")),
            _ => {}
        }
    }
    (requests, anomalies)
}

fn blanked(records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut blanker = Blanker::new();
    records
        .iter()
        .map(|record| {
            let mut record = record.clone();
            blanker.blank(&mut record);
            record
        })
        .collect()
}

/// The bytes of one direction; where some are missing, one that is in no secret.
fn stream(records: &[Vec<u8>], direction: Direction) -> Vec<u8> {
    let (mut out, mut expected) = (Vec::new(), None);
    for record in records {
        let Some(header) = RecordHeader::read(record).filter(|h| h.direction_bits() == direction as u8)
        else {
            continue;
        };
        if expected.is_some_and(|offset| offset != header.offset) {
            out.push(0xff);
        }
        out.extend_from_slice(&record[HEADER_LEN..]);
        expected = Some(header.offset + u64::from(header.captured));
    }
    out
}

/// Parts of secrets in whatever way JSON may write them.
fn needles() -> Vec<Vec<u8>> {
    let mut needles = Vec::new();
    for secret in SECRETS {
        for ascii in [false, true] {
            let plan = Plan {
                secret: 0,
                stream: false,
                chunked: false,
                chunked_request: false,
                ascii,
                pretty: false,
                crlf: false,
                shape: 0,
                chunk: 1,
            };
            let written = text(&plan, &json!(secret));
            let twice = text(&plan, &json!(written));
            for form in [
                secret.as_bytes(),
                written.trim_matches('"').as_bytes(),
                twice.trim_matches('"').as_bytes(),
            ] {
                needles.extend(form.windows(5).map(<[u8]>::to_vec));
            }
        }
    }
    // What protocols write themselves.
    let harmless = b"GET / HTTP/1.1\r\n\r\n https:// \"}\n\ndata: {\"id\":\" {\\\"id\\\":\\\"".as_slice();
    needles.retain(|needle| memchr::memmem::find(harmless, needle).is_none());
    // A run of ones is what a number becomes.
    needles.retain(|needle| !needle.iter().all(|b| *b == b'1'));
    needles.sort();
    needles.dedup();
    needles
}

fn leak(bytes: &[u8]) -> Option<String> {
    static NEEDLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(needles);
    NEEDLES
        .iter()
        .find(|needle| memchr::memmem::find(bytes, needle).is_some())
        .map(|needle| String::from_utf8_lossy(needle).into_owned())
}

/// The messages of a direction, without what blanking replaces.
fn messages(requests: bool, records: &[Vec<u8>], direction: Direction) -> Vec<String> {
    let mut decoder = if requests {
        Decoder::request()
    } else {
        Decoder::response()
    };
    let mut out = Vec::new();
    let mut body = 0;
    decoder.feed(&stream(records, direction), &mut |event| {
        let line = match event {
            HttpEvent::Body(bytes) => {
                body += bytes.len();
                return;
            }
            HttpEvent::Framing(_) => return,
            HttpEvent::Head { head, bytes } => {
                let (what, headers) = match head {
                    Head::Request(r) => (
                        format!("{} {}", r.method, r.target.split('?').next().unwrap_or("")),
                        r.headers,
                    ),
                    Head::Response(r) => (r.status.to_string(), r.headers),
                };
                let kept: Vec<_> = headers
                    .into_iter()
                    .filter(|(name, _)| name.starts_with("content-") || name == "transfer-encoding")
                    .collect();
                format!("{what} {bytes} {kept:?}")
            }
            other => format!("{other:?} after {}", std::mem::take(&mut body)),
        };
        out.push(line);
    });
    out
}

/// Facts in JSON, and whether each string is empty.
fn facts(records: &[Vec<u8>], direction: Direction) -> Vec<String> {
    let mut decoder = if direction == Direction::In {
        Decoder::request()
    } else {
        Decoder::response()
    };
    let mut bodies = vec![(false, Vec::new())];
    decoder.feed(&stream(records, direction), &mut |event| match event {
        HttpEvent::Head {
            head: Head::Response(head),
            ..
        } => {
            bodies.last_mut().expect("one").0 = head
                .headers
                .iter()
                .any(|(_, v)| v.starts_with("text/event-stream"));
        }
        HttpEvent::Body(bytes) => bodies.last_mut().expect("one").1.extend_from_slice(bytes),
        HttpEvent::End { .. } => bodies.push((false, Vec::new())),
        _ => {}
    });
    let mut out = Vec::new();
    for (events, body) in bodies {
        let body = String::from_utf8_lossy(&body).into_owned();
        if let Ok(value @ Value::Object(_)) = serde_json::from_str::<Value>(&body) {
            out.push(skeleton("", &value));
        }
        for data in body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|_| events)
        {
            out.push(
                serde_json::from_str::<Value>(data)
                    .map_or_else(|_| data.to_owned(), |value| skeleton("", &value)),
            );
        }
    }
    out
}

fn skeleton(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) if ["model", "id", "role", "object", "finish_reason"].contains(&key) => {
            text.clone()
        }
        Value::String(text) => if text.is_empty() { "empty" } else { "text" }.to_owned(),
        Value::Number(n) if key.ends_with("_tokens") => n.to_string(),
        Value::Number(_) => "number".to_owned(),
        Value::Array(items) => format!(
            "[{}]",
            items
                .iter()
                .map(|item| skeleton("", item))
                .collect::<Vec<_>>()
                .join(",")
        ),
        Value::Object(members) => {
            let known = [
                "messages",
                "choices",
                "delta",
                "message",
                "usage",
                "model",
                "id",
                "role",
                "content",
                "object",
                "stream",
                "tool_calls",
                "finish_reason",
                "prompt_tokens",
                "completion_tokens",
                "prompt_tokens_details",
                "cached_tokens",
                "reasoning_content",
                "error",
                "type",
                "max_tokens",
            ];
            let kept: Vec<String> = members
                .iter()
                .filter(|(name, _)| known.contains(&name.as_str()))
                .map(|(name, value)| format!("{name}:{}", skeleton(name, value)))
                .collect();
            format!("{{{}}}", kept.join(","))
        }
        other => other.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn blanked_conversations_parse_alike_and_keep_no_secret(
        plans in proptest::collection::vec(plan(), 1..4),
        sizes in proptest::collection::vec(1..400usize, 1..12),
        pipelined in any::<bool>(),
        role in proptest::sample::select(vec![Role::Accepted, Role::Connected, Role::Unknown]),
    ) {
        let exchanges: Vec<Exchange> = plans.iter().map(exchange).collect();
        let before = records(&exchanges, role, 0, pipelined, &sizes);
        let after = blanked(&before);
        let (requests, anomalies) = told(&before, role);
        if role == Role::Accepted {
            prop_assert_eq!(requests.len(), exchanges.len(), "{:?}", anomalies);
        }
        // The core reads an event in plain text as one of a stream; its facts are somebody's text and don't pass.
        if !plans.iter().any(|plan| plan.shape == 4 && plan.secret == 8) {
            prop_assert_eq!((requests, anomalies), told(&after, role));
        }
        for (a, b) in before.iter().zip(&after) {
            prop_assert_eq!(a.len(), b.len());
            prop_assert_eq!(&a[..HEADER_LEN], &b[..HEADER_LEN]);
        }
        let (asks, answers) = if role == Role::Connected { (Direction::Out, Direction::In) } else { (Direction::In, Direction::Out) };
        for (requests, direction) in [(true, asks), (false, answers)] {
            prop_assert_eq!(leak(&stream(&after, direction)), None);
            prop_assert_eq!(messages(requests, &before, direction), messages(requests, &after, direction));
            if role != Role::Connected {
                prop_assert_eq!(facts(&before, direction), facts(&after, direction));
            }
        }
    }

    #[test]
    fn loss_and_late_joins_leak_nothing(
        plans in proptest::collection::vec(plan(), 1..5),
        sizes in proptest::collection::vec(1..300usize, 1..12),
        lost in proptest::collection::vec(0..60usize, 0..6),
        cut in proptest::collection::vec((0..60usize, 0..40usize), 0..6),
        start in 0..40usize,
        late in any::<bool>(),
        role in proptest::sample::select(vec![Role::Accepted, Role::Connected, Role::Unknown, Role::Paired]),
    ) {
        // Where the place is lost, plain text that holds a whole event is not told apart from a stream: its facts pass.
        let exchanges: Vec<Exchange> =
            plans.iter().filter(|plan| plan.shape != 4 || plan.secret != 8).map(exchange).collect();
        let flags = if late { record_flag::LATE } else { 0 };
        let mut some = records(&exchanges, role, flags, false, &sizes);
        // Captured less than there was.
        for (index, keep) in cut {
            if let Some(record) = some.get_mut(index)
                && let Some(mut header) = RecordHeader::read(record)
            {
                header.captured = header.captured.min(keep as u32);
                record.truncate(HEADER_LEN + header.captured as usize);
                record[..HEADER_LEN].copy_from_slice(&header.to_bytes());
            }
        }
        let kept: Vec<Vec<u8>> = some.into_iter().enumerate().skip(start).filter(|(i, _)| !lost.contains(i)).map(|(_, r)| r).collect();
        let after = blanked(&kept);
        for direction in [Direction::In, Direction::Out] {
            prop_assert_eq!(leak(&stream(&after, direction)), None);
        }
    }

    #[test]
    fn other_protocols_are_zeros(bytes in proptest::collection::vec(any::<u8>(), 8..600), sizes in proptest::collection::vec(1..99usize, 1..5), role in 0..5u8) {
        let role = Role::try_from(role).expect("a role");
        let exchange = Exchange { request: bytes.clone(), response: bytes.clone() };
        let after = blanked(&records(&[exchange], role, 0, false, &sizes));
        for direction in [Direction::In, Direction::Out] {
            let stream = stream(&after, direction);
            prop_assert_eq!(stream.len(), bytes.len());
            // What is left is at most a protocol's fixed first bytes, words of the lists, line ends and fillers.
            let same = stream.windows(4).zip(bytes.windows(4)).filter(|(a, b)| a == b && a.iter().any(|b| *b != 0)).count();
            prop_assert!(same <= 9, "{:?}\n{:?}", stream, bytes);
        }
    }

    #[test]
    fn any_record_is_survived(record in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut blanker = Blanker::new();
        let mut copy = record.clone();
        blanker.blank(&mut copy);
        prop_assert_eq!(copy.len(), record.len());
    }
}
