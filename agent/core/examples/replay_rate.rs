//! How many streamed chunks a second the core takes: `cargo run --release -p infertap-core --example replay_rate`.
//!
//! Owns: streams in the shapes that llama.cpp's server and vLLM write, interleaved over kept-alive connections and fed
//! through ring-buffer records, `Event` and `Pipeline` on one core, with `advance` at its usual pace. Refuses: judging
//! the number. Arguments: connections (64), tokens a stream (256), seconds (3). Each shape is played twice: as it is, and with
//! clients that ask for no usage while somebody counts for the core, so that all that is said is kept.

use infertap_abi::{Direction, HEADER_LEN, RecordHeader, RecordKind, Role, Transport};
use infertap_core::{
    CountOutcome, Counted, Event, EventKind, Observation, Pipeline, PipelineConfig, Source, Status,
};
use std::time::{Duration, Instant};

/// One piece of a conversation: which way, its bytes, and how many streamed chunks with content it holds.
struct Piece {
    direction: Direction,
    bytes: Vec<u8>,
    chunks: u64,
}

fn out(bytes: Vec<u8>, chunks: u64) -> Piece {
    Piece {
        direction: Direction::Out,
        bytes,
        chunks,
    }
}

fn http_chunk(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

fn request(words: usize, usage: bool) -> Vec<u8> {
    let usage = if usage {
        r#","stream_options":{"include_usage":true}"#
    } else {
        ""
    };
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"{}"}}],"model":"smollm2","max_tokens":256,"temperature":0,"stream":true{usage}}}"#,
        "the quick brown fox jumps over a lazy dog ".repeat(words / 9)
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: OpenAI/Python 1.99.1\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Reads of 4096 and 16384 bytes; headers alone; two events in the first chunk; one write a token; the terminator apart.
fn llama_cpp(tokens: usize, usage: bool) -> Vec<Piece> {
    let event = |delta: &str, finish: &str, more: &str| {
        format!(
            "data: {{\"choices\":[{{\"finish_reason\":{finish},\"index\":0,\"delta\":{delta}}}],\"created\":1764451749,\"id\":\"chatcmpl-mK8vQw2GZ0nXHf3yJ1sYbA7cRd9LtPuE\",\"model\":\"smollm2-6l.gguf\",\"system_fingerprint\":\"b7180-3e18dba9f\",\"object\":\"chat.completion.chunk\"{more}}}\n\n"
        )
    };
    let mut pieces: Vec<Piece> = Vec::new();
    let request = request(400, usage);
    let (first, rest) = request.split_at(request.len().min(4096));
    for part in [first].into_iter().chain(rest.chunks(16384)) {
        pieces.push(Piece {
            direction: Direction::In,
            bytes: part.to_vec(),
            chunks: 0,
        });
    }
    let head = "HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    pieces.push(out(head.as_bytes().to_vec(), 0));
    let role = event(r#"{"role":"assistant","content":null}"#, "null", "");
    pieces.push(out(
        http_chunk(&(role + &event(r#"{"content":"Once"}"#, "null", ""))),
        1,
    ));
    for index in 1..tokens {
        let delta = format!(r#"{{"content":" word{}"}}"#, index % 100);
        pieces.push(out(http_chunk(&event(&delta, "null", "")), 1));
    }
    let timings = r#","timings":{"cache_n":0,"prompt_n":403,"prompt_ms":812.5,"prompt_per_token_ms":2.01,"prompt_per_second":496.0,"predicted_n":256,"predicted_ms":1900.1,"predicted_per_token_ms":7.4,"predicted_per_second":134.7}"#;
    // A server that does not tell them, as many do not.
    let timings = if usage { timings } else { "" };
    pieces.push(out(http_chunk(&event("{}", "\"length\"", timings)), 0));
    pieces.push(out(http_chunk("data: [DONE]\n\n"), 0));
    pieces.push(out(b"0\r\n".to_vec(), 0));
    pieces.push(out(b"\r\n".to_vec(), 0));
    pieces
}

/// One read; headers; the role at the first token; one write a token; usage and `[DONE]` apart.
fn vllm(tokens: usize, asks: bool) -> Vec<Piece> {
    let frame = |choices: &str, more: &str| {
        http_chunk(&format!(
            "data: {{\"id\":\"chatcmpl-0b5a4e0f6a1d4f0e9c1b7c6a5d4e3f2a\",\"object\":\"chat.completion.chunk\",\"created\":1764451749,\"model\":\"smollm2\",\"choices\":{choices}{more}}}\n\n"
        ))
    };
    let choice = |delta: &str, finish: &str| {
        format!(
            r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish},"token_ids":null}}]"#
        )
    };
    let mut pieces = vec![Piece {
        direction: Direction::In,
        bytes: request(400, asks),
        chunks: 0,
    }];
    let head = "HTTP/1.1 200 OK\r\ndate: Sat, 29 Nov 2025 21:29:09 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    pieces.push(out(head.as_bytes().to_vec(), 0));
    pieces.push(out(
        frame(
            &choice(r#"{"role":"assistant","content":""}"#, "null"),
            r#","prompt_token_ids":null"#,
        ),
        0,
    ));
    for index in 0..tokens {
        let finish = if index + 1 == tokens { "\"length\"" } else { "null" };
        let delta = format!(r#"{{"content":" word{}"}}"#, index % 100);
        pieces.push(out(frame(&choice(&delta, finish), ""), 1));
    }
    let usage = format!(
        r#","usage":{{"prompt_tokens":403,"total_tokens":{},"completion_tokens":{tokens}}}"#,
        403 + tokens
    );
    if asks {
        pieces.push(out(frame("[]", &usage), 0));
    }
    pieces.push(out(http_chunk("data: [DONE]\n\n"), 0));
    pieces.push(out(b"0\r\n\r\n".to_vec(), 0));
    pieces
}

/// A kept-alive connection that plays its conversation over and over.
struct Connection {
    id: u64,
    next: usize,
    offsets: [u64; 2],
}

/// Time that this thread has been on a processor (`/proc/thread-self/schedstat`, first field, nanoseconds): what others
/// on the machine take is not ours.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    let first = stat
        .split_ascii_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok());
    Duration::from_nanos(first.expect("nanoseconds"))
}

/// Chunks with content that went in, and the processor time it took.
fn measure(shape: &[Piece], connections: u64, for_at_least: Duration, count: bool) -> (u64, u64, Duration) {
    let mut pipeline = Pipeline::new(PipelineConfig {
        count,
        ..PipelineConfig::default()
    });
    let mut connections: Vec<Connection> = (1..=connections)
        .map(|id| Connection {
            id,
            next: 0,
            offsets: [0; 2],
        })
        .collect();
    let mut records: Vec<Vec<u8>> = shape
        .iter()
        .map(|piece| {
            let header = RecordHeader {
                kind: RecordKind::Data as u16,
                captured: piece.bytes.len() as u32,
                len: piece.bytes.len() as u32,
                dur_ns: 8_000,
                tgid: 1,
                dir_role: RecordHeader::pack(piece.direction as u8, Role::Accepted as u8),
                transport: Transport::Tcp as u8,
                ..RecordHeader::default()
            };
            [&header.to_bytes()[..], &piece.bytes].concat()
        })
        .collect();
    let mut observations: Vec<Observation> = Vec::new();
    let (mut now, mut chunks, mut bytes, mut finished) = (1_000_000_000_u64, 0, 0, 0u64);
    let mut next_advance = 0;
    let (began, cpu_began) = (Instant::now(), cpu_time());
    while began.elapsed() < for_at_least {
        for _ in 0..shape.len() {
            for connection in &mut connections {
                let piece = &shape[connection.next];
                let record = &mut records[connection.next];
                let offset = &mut connection.offsets[piece.direction as usize - 1];
                now += 10_000;
                record[0..8].copy_from_slice(&now.to_le_bytes());
                record[8..16].copy_from_slice(&connection.id.to_le_bytes());
                record[16..24].copy_from_slice(&offset.to_le_bytes());
                *offset += (record.len() - HEADER_LEN) as u64;
                connection.next = (connection.next + 1) % shape.len();
                chunks += piece.chunks;
                bytes += piece.bytes.len() as u64;
                let event = Event::decode(record).expect("a record of our own");
                pipeline.handle(event, &mut observations);
            }
            if now >= next_advance {
                next_advance = now + 100_000_000;
                pipeline.advance(now, &mut observations);
            }
            for at in 0..observations.len() {
                if let Observation::Count(job) = &observations[at] {
                    let kind = EventKind::Counted(Counted {
                        id: job.id,
                        input: Some((403, Source::Tokenizer)),
                        output: None,
                        outcome: CountOutcome::Counted,
                    });
                    pipeline.handle(Event { at: now, kind }, &mut observations);
                }
            }
            for observation in observations.drain(..) {
                match observation {
                    Observation::Finished(f) => {
                        assert_eq!(f.record.status, Status::Ok, "{:?}", f.record);
                        finished += f.record.chunks;
                    }
                    Observation::Anomaly { kind, .. } => panic!("anomaly {}", kind.as_str()),
                    _ => {}
                }
            }
        }
    }
    let took = cpu_time().saturating_sub(cpu_began);
    assert_eq!(chunks, finished, "every chunk that went in is in a record");
    (chunks, bytes, took)
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|a| a.parse::<u64>().expect("a number"));
    let connections = arguments.next().unwrap_or(64);
    let tokens = arguments.next().unwrap_or(256) as usize;
    let seconds = Duration::from_secs(arguments.next().unwrap_or(3));
    for (name, shape, count) in [
        ("llama_cpp", llama_cpp(tokens, true), false),
        ("vllm", vllm(tokens, true), false),
        ("llama_cpp, counted", llama_cpp(tokens, false), true),
        ("vllm, counted", vllm(tokens, false), true),
    ] {
        let (chunks, bytes, took) = measure(&shape, connections, seconds, count);
        let rate = chunks as f64 / took.as_secs_f64();
        println!(
            "{name:<18} {rate:>10.0} chunks/s of processor time  {:>6.0} MB/s  {:>5.0} ns a chunk  ({connections} connections, {tokens} tokens a stream)",
            bytes as f64 / took.as_secs_f64() / 1e6,
            1e9 / rate,
        );
    }
}
