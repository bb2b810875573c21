#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets into seeds/TARGET/. Run it in this folder after a change."""
import gzip
import json
import pathlib
import re
import struct
import zlib

CHAT = b'{"messages":[{"role":"user","content":"Hi \\"you\\" \\u00e9\\ud83d\\ude00"}],"model":"m","stream":true}'
REQUEST = (b"POST /v1/chat/completions?api_key=x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n"
           b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(CHAT)) + CHAT
EVENTS = [
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n',
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n',
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}\n\n',
    b"data: [DONE]\n\n",
]
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWER = (b'{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant",'
          b'"content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}')
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER
GAP = b"\0G\x08"


def chunked(parts):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts)


def step(operation, connection, data):
    return struct.pack("<BBH", operation, connection, len(data)) + data


def record(kind, direction, payload=b"", flags=0, missing=0):
    length = len(payload) + missing
    return struct.pack("<QQQHHIIIIIIIIHBB", 7, 9, 100, kind, flags, len(payload), length, length, 5, 100, 101, 7, 3, 0,
                       direction | 2 << 4, 1) + payload


STREAM = STREAM_HEAD + chunked(EVENTS) + b"0\r\n\r\n"
# What libzmq put on a socket; the fuzzer takes 4096 bytes.
REQUESTS, OUTPUTS = (bytes.fromhex(s[s["side"]])[:4000] for s in json.loads(pathlib.Path("../testdata/vllm/streams.json").read_text()))
SGLANG = {(s["name"], s["encoding"]): bytes.fromhex(s[s["side"]])[:4000] for s in json.loads(pathlib.Path("../testdata/sglang/streams.json").read_text())}
SGLANG_BODIES = {(m["name"], m["version"], m["encoding"]): bytes.fromhex(m["body"])[:4000] for m in json.loads(pathlib.Path("../testdata/sglang/messages.json").read_text())}
OPEN, CLOSE = step(10, 0, b""), step(13, 0, b"")


def redactions():
    """The redactor's corpus, a seed a section, its marks taken off; without what scanners would take for real keys."""
    text = pathlib.Path("../tests/redaction/corpus.txt").read_text()
    text = "\n".join(line for line in text.split("\n") if "‖" not in line)
    text = re.sub("⟦[A-Z]+ |⟧", "", text).replace("␤", "\n")
    sections = re.split("\n(?:#.*\n)+", text)
    return {f"corpus{at}": bytes([at * 4 % 256 | 2, 60]) + section.encode()[:700] for at, section in enumerate(sections) if section.strip("# \n")}


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text


SEEDS = {
    "http1": {
        "requests": b"\0\x08" + REQUEST + b"GET /health HTTP/1.1\r\n\r\n" + REQUEST,
        "stream": b"\x01\x20" + b"HTTP/1.1 100 Continue\r\n\r\n" + STREAM + RESPONSE,
        "head": b"\x03\x08" + b"HTTP/1.1 200 OK\nContent-Length: 5\n\nHTTP/1.0 200 OK\r\n\r\nuntil close",
        "connect": b"\x05\x08" + b"HTTP/1.1 200 OK\r\n\r\n\x16\x03\x01",
        "trailers": b"\x01\x10" + b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nA: b\r\n\r\n",
        "gaps": b"\x01\x10" + STREAM_HEAD + b"10\r\n01234567" + GAP + b"\r\n5" + GAP + b"x}" + RESPONSE,
        "late": b"\x08\x10" + b'message"}\n' + REQUEST,
        "tls": b"\0\0\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        "http2": b"\0\0PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "redis": b"\0\0*1\r\n$4\r\nPING\r\n",
        "postgresql": b"\0\0\0\0\0\x29\0\x03\0\0user\0postgres\0",
    },
    "sse": {
        "chat": b"\xff\x20" + b"".join(EVENTS),
        "fields": b"\x08\x08\xef\xbb\xbf: hi\r\revent: e\r\nid: 1\r\ndata: a\r\ndata\ndata:b\r\n\r\n: x\n\n",
        "large": b"\0\x10data: 0123456789\n\ndata: a\n\n" + GAP + b"data: lost\n\ndata: b\n\n",
    },
    "json_scan": {
        "request": b"\x20\x08" + CHAT,
        "answer": b"\x08\x30" + ANSWER,
        "chunk": b"\x80\x01" + EVENTS[2][6:-2],
        "paths": b"\x04\x08" + b'{"a":{"b":-1.5e3,"0":[{"b":null}]},"model":"\\ud83d\\ude00long","a":[{"b":true},[]]}',
        "array": b"\x10\x08" + b' [1, "x", {"a": false}, [2]] ',
        "gap": b"\x20\x10" + CHAT[:40] + GAP + CHAT[48:],
    },
    "encoding": {
        "gzip": b"\0\x10" + gzip.compress(ANSWER, mtime=0) + gzip.compress(b"two", mtime=0),
        "zlib": b"\x45\x10" + zlib.compress(b"".join(EVENTS)),
        "bare": b"\x69\x10" + zlib.compress(ANSWER)[2:-4],
        "plain": b"\x02\x10" + ANSWER,
    },
    "event_decode": {
        "data": record(2, 1, REQUEST),
        "cut": record(2, 2, b"HTTP/1.1 200 OK", missing=100) + bytes(16),
        "open": record(1, 0, flags=1),
        "exec": record(16, 0, b"llama-server\0\0\0\0"),
    },
    "vllm": {
        "requests": b"\x08\x20" + REQUESTS,
        "outputs": b"\x09\x20" + OUTPUTS,
        "cut": b"\x03\x20" + OUTPUTS,
        "late": b"\x0c\x20" + REQUESTS[150:],
        "gaps": b"\x05\x20" + OUTPUTS[200:900] + GAP + OUTPUTS[909:1200] + GAP + OUTPUTS[1300:],
    },
    "sglang": {
        "requests": b"\0\x20" + SGLANG["requests", "pickle"],
        "outputs": b"\0\x20" + SGLANG["outputs", "pickle"],
        "tagged": b"\0\x20" + SGLANG["outputs", "msgpack"],
        "tagged_requests": b"\0\x20" + SGLANG["requests", "msgpack"],
        "late": b"\x04\x20" + SGLANG["outputs", "pickle"][100:],
        "cut": b"\x02\x20" + SGLANG["outputs", "msgpack"],
    },
    "pickle": {
        "struct": SGLANG_BODIES["request", "0.5.23", "pickle"],
        "outputs": SGLANG_BODIES["first tokens", "0.5.23", "pickle"],
        "object": SGLANG_BODIES["last token", "0.5.6", "pickle"],
        "protocol2": b"\x80\x02cposix\nsystem\n)\x81}q\x00(U\x01aK\x01ub.",
    },
    "gguf": {
        "head": b"GGUF\3\0\0\0" + struct.pack("<QQ", 0, 2)
        + gguf_text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + gguf_text(b"a") + gguf_text(b"bc")
        + gguf_text(b"general.name") + struct.pack("<I", 8) + gguf_text(b"tiny"),
    },
    "pipeline": {
        "stream": OPEN + step(0, 0, REQUEST) + step(1, 0, STREAM_HEAD)
        + b"".join(step(1, 0, chunked([e])) for e in EVENTS) + step(1, 0, b"0\r\n\r\n") + CLOSE,
        "answer": OPEN + step(0, 0, REQUEST) + step(1, 0, RESPONSE) + step(0, 0, REQUEST) + step(1, 0, RESPONSE) + CLOSE,
        "cancel": OPEN + step(0, 0, REQUEST) + step(1, 0, STREAM_HEAD + chunked(EVENTS[:2])) + step(12, 0, b"") + CLOSE,
        "late": struct.pack("<BBH", 10, 1, 1) + step(1, 1, chunked(EVENTS[1:]) + b"0\r\n\r\n") + step(0, 1, REQUEST) + step(1, 1, STREAM),
        "lost": OPEN + step(0, 0, REQUEST) + step(1, 0, STREAM_HEAD) + struct.pack("<BBH", 9, 0, 50) + step(1, 0, RESPONSE),
        "evict": b"".join(step(10, c, b"") + step(0, c, REQUEST) for c in range(4)) + struct.pack("<BBH", 15, 0, 60000),
    },
    "redact": redactions(),
    "content": {
        "stream": b"\x00\x20" + CHAT + b"\0A" + b"".join(EVENTS),
        "answer": b"\x02\x20" + CHAT + b"\0A" + ANSWER,
        "parts": b"\x82\x20" + b'{"messages":[{"role":"user","content":[{"type":"text","text":"I am a@b.com"},{"type":"image_url"}]},'
        + b'{"role":"assistant","tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"x"}]}\0A{"error":{}}',
        "chunk": b"\x00\x08" + b'{"choices":[{"index":0,"text":"a","delta":{"content":"b","reasoning":"c","refusal":"d","tool_calls":[{"index":1,'
        + b'"function":{"name":"f","arguments":"{"}}],"function_call":{"name":"g","arguments":"h"}}}]}',
        "completion": b"\x03\x20" + b'{"model":"m","prompt":["a","b",[1,2]],"suffix":"c"}\0A{"choices":[{"index":0,"text":"d"}]}',
        "gap": b"\x00\x20" + CHAT[:20] + GAP + CHAT[20:] + b"\0A" + EVENTS[1] + GAP + EVENTS[2],
    },
    # A request by way of a gateway; one that is tried again; two at once; the gateway done first; a long wait.
    "gateway": {
        "pass": bytes([0, 0, 5, 1, 0, 0, 2, 0, 2, 3, 0, 2]),
        "again": bytes([0, 0, 5, 1, 0, 0, 2, 0, 0, 1, 0, 0, 2, 0, 2, 3, 0, 2]),
        "two": bytes([0, 0, 4, 0, 1, 4, 1, 0, 0, 1, 1, 0, 2, 1, 0, 2, 0, 0, 3, 0, 0, 3, 1, 0]),
        "first": bytes([0, 0, 5, 1, 0, 0, 3, 0, 0, 2, 0, 2, 5, 0, 1, 4, 0, 1]),
        "long": bytes([0, 0, 5, 1, 0, 0, 2, 0, 2, 6, 0, 100, 6, 0, 100, 3, 0, 2, 6, 0, 100]),
    },
}

for target, seeds in SEEDS.items():
    folder = pathlib.Path("seeds", target)
    folder.mkdir(parents=True, exist_ok=True)
    for name, seed in seeds.items():
        (folder / name).write_bytes(seed)
