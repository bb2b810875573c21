//! Requests, responses and streamed chunks as bytes.
//!
//! Owns: building them. Refuses: when they are sent.

use super::{Row, Step::*};

pub fn text(s: impl AsRef<[u8]>) -> Vec<u8> {
    s.as_ref().to_vec()
}

pub fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub fn chat(body: &str) -> Vec<u8> {
    post("/v1/chat/completions", "", body)
}

/// A streamed chat request for the model `m`.
pub fn ask() -> Vec<u8> {
    chat(r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}"#)
}

pub fn json(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub fn stream_head() -> Vec<u8> {
    text("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
}

/// One HTTP chunk.
pub fn chunk(data: impl AsRef<[u8]>) -> Vec<u8> {
    let data = data.as_ref();
    let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// One event in one HTTP chunk.
pub fn event(json: &str) -> Vec<u8> {
    chunk(format!("data: {json}\n\n"))
}

/// A chat chunk with this delta and these further fields (each with a leading comma).
pub fn delta(delta: &str, more: &str) -> Vec<u8> {
    event(&format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]{more}}}"#
    ))
}

pub fn role() -> Vec<u8> {
    delta(r#"{"role":"assistant","content":""}"#, "")
}

pub fn word() -> Vec<u8> {
    delta(r#"{"content":" word"}"#, "")
}

pub fn stop() -> Vec<u8> {
    event(
        r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    )
}

pub fn usage(input: u64, output: u64) -> Vec<u8> {
    event(&format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[],"usage":{{"prompt_tokens":{input},"completion_tokens":{output},"total_tokens":{}}}}}"#,
        input.saturating_add(output)
    ))
}

pub fn done() -> Vec<u8> {
    event("[DONE]")
}

pub fn last_chunk() -> Vec<u8> {
    text("0\r\n\r\n")
}

/// A request, a stream's head and two words.
pub fn streaming() -> Vec<Row> {
    vec![
        (0, In(ask())),
        (10, Out(stream_head())),
        (20, Out(role())),
        (20, Out(word())),
        (30, Out(word())),
    ]
}
