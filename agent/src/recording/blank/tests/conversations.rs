//! Conversations full of secrets, as servers and clients write them.

use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What must never be found again, not even a part of five bytes.
pub(super) const SECRETS: &[&str] = &[
    "Zq7-vault-9931",
    "geheim\u{e4}\u{f6}\u{fc}nis",
    "\u{79d8}\u{5bc6}\u{306e}\u{8a00}\u{8449}",
    "\u{1f511}\u{1f5dd}keyring",
    "sk-live-0a1b2c3d4e",
    "4111111122223333",
    "line\none\ttwo \"quoted\" back\\slash",
    "https://vault.zq.example/?q=zz",
    "zq\n\ndata: {\"id\":\"jj-vault\"}\n\ndata: zq",
    "GET /zq-vault HTTP/1.1\r\n\r\n",
];

/// One request and its response on the wire.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) request: Vec<u8>,
    pub(super) response: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) secret: usize,
    pub(super) stream: bool,
    pub(super) chunked: bool,
    pub(super) chunked_request: bool,
    pub(super) ascii: bool,
    pub(super) pretty: bool,
    pub(super) crlf: bool,
    pub(super) shape: u8,
    pub(super) chunk: usize,
}

pub(super) fn plan() -> impl Strategy<Value = Plan> {
    (0..SECRETS.len(), any::<[bool; 6]>(), 0..5u8, 1..90usize).prop_map(
        |(secret, [stream, chunked, chunked_request, ascii, pretty, crlf], shape, chunk)| Plan {
            secret,
            stream,
            chunked,
            chunked_request,
            ascii,
            pretty,
            crlf,
            shape,
            chunk,
        },
    )
}

pub(super) fn text(plan: &Plan, value: &Value) -> String {
    let text = if plan.pretty {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    let text = text.expect("serialises");
    if !plan.ascii {
        return text;
    }
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").expect("a string takes it");
            }
        }
    }
    out
}

pub(super) fn frame(chunked: bool, chunk: usize, head: &str, body: &[u8]) -> Vec<u8> {
    let mut out = head.as_bytes().to_vec();
    if !chunked {
        out.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
        out.extend(body);
        return out;
    }
    out.extend(b"Transfer-Encoding: chunked\r\n\r\n");
    for part in body.chunks(chunk) {
        out.extend(format!("{:X};vault=zq\r\n", part.len()).bytes());
        out.extend(part);
        out.extend(b"\r\n");
    }
    out.extend(b"0\r\nX-Vault: Zq7-vault-9931\r\n\r\n");
    out
}

pub(super) fn exchange(plan: &Plan) -> Exchange {
    let s = SECRETS[plan.secret];
    let mut request = json!({
        "messages": [
            {"role": "system", "content": s},
            {"role": "user", "content": [{"type": "text", "text": s}, {"type": "image_url", "image_url": {"url": s}}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_7", "type": "function", "function": {"name": s, "arguments": json!({"card": s}).to_string()}}]},
            {"role": "tool", "tool_call_id": "call_7", "content": s, "name": s},
        ],
        "tools": [{"type": "function", "function": {"name": s, "description": s, "parameters":
            {"type": "object", "properties": {s: {"type": "string", "enum": [s], "const": 41_111_111}}, "required": [s]}}}],
        "model": "org/smol-2", "max_tokens": 7, "temperature": 0.5, "stream": plan.stream, "user": s, "stop": [s],
        "metadata": {"id": s, "model": s, s: s}, "logit_bias": {"41111": 100}, "prompt": [41111, 11222, 23333],
    });
    request[s] = json!(s);
    let host = "POST /v1/chat/completions?api_key=sk-live-0a1b2c3d4e HTTP/1.1\r\nHost: vault.zq.example\r\n\
                Authorization: Bearer sk-live-0a1b2c3d4e\r\nX-Api-Key: sk-live-0a1b2c3d4e\r\nCookie: a=Zq7-vault-9931\r\n\
                X-Zq-Vault: Zq7-vault-9931\r\nContent-Type: application/json\r\n";
    let request = frame(
        plan.chunked_request,
        plan.chunk,
        host,
        text(plan, &request).as_bytes(),
    );

    let usage = json!({"prompt_tokens": 38, "completion_tokens": 6, "total_tokens": 44, "prompt_tokens_details": {"cached_tokens": 3}});
    let base = |object: &str, choices: Value| json!({"id": "chatcmpl-77", "object": object, "created": 1, "model": "org/smol-2", "choices": choices});
    let status = match plan.shape {
        3 => "400 Zq7-vault-9931",
        _ => "200 OK",
    };
    let head = |kind: &str| {
        format!(
            "HTTP/1.1 {status}\r\nServer: Zq7-vault-9931\r\nSet-Cookie: a=Zq7-vault-9931\r\nContent-Type: {kind}\r\n"
        )
    };
    let response = if plan.shape == 3 {
        let error =
            json!({"error": {"message": s, "type": "invalid_request_error", "param": s, "code": 400}});
        frame(
            plan.chunked,
            plan.chunk,
            &head("application/json"),
            text(plan, &error).as_bytes(),
        )
    } else if plan.shape == 4 {
        frame(plan.chunked, plan.chunk, &head("text/plain"), s.as_bytes())
    } else if plan.stream {
        let end = if plan.crlf { "\r\n" } else { "\n" };
        let mut body = String::new();
        let mut event = |value: &Value| {
            let one_line = Plan {
                pretty: false,
                ..plan.clone()
            };
            write!(body, "data: {}{end}{end}", text(&one_line, value)).expect("a string takes it");
        };
        event(&base(
            "chat.completion.chunk",
            json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]),
        ));
        let deltas = [
            json!({"content": s}),
            json!({"reasoning_content": s}),
            json!({"refusal": s}),
            json!({"tool_calls": [{"index": 0, "id": "call_8", "function": {"name": s, "arguments": s}}]}),
        ];
        for delta in deltas {
            event(&base(
                "chat.completion.chunk",
                json!([{"index": 0, "delta": delta, "logprobs": {"content": [
                {"token": s, "logprob": -0.5, "bytes": [41, 111, 112, 223], "top_logprobs": []}]}, "finish_reason": null}]),
            ));
        }
        event(&base(
            "chat.completion.chunk",
            json!([{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": s}]),
        ));
        event(
            &json!({"id": "chatcmpl-77", "object": "chat.completion.chunk", "model": "org/smol-2", "choices": [], "usage": usage}),
        );
        write!(body, ": ping Zq7-vault-9931{end}{end}data: [DONE]{end}{end}").expect("a string takes it");
        frame(
            true,
            plan.chunk,
            &head("text/event-stream; charset=utf-8"),
            body.as_bytes(),
        )
    } else {
        let mut value = base(
            "chat.completion",
            json!([{"index": 0, "message": {"role": "assistant", "content": s,
            "tool_calls": [{"id": "call_9", "type": "function", "function": {"name": s, "arguments": s}}]}, "finish_reason": "length"}]),
        );
        value["usage"] = usage;
        value[s] = json!({"id": s});
        frame(
            plan.chunked,
            plan.chunk,
            &head("application/json"),
            text(plan, &value).as_bytes(),
        )
    };
    Exchange { request, response }
}
