"""A server that tokenizes and does nothing else: tokenizing_server.py PORT, with the Python that has tokenizers.

POST /v1/completions answers with as many prompt tokens as its tokenizer gives. GET /encoded tells for each of these
responses how long its tokenizing took, as this process saw it. GET /threads encodes texts in several threads at once, one
by one and as batches, and answers with how many texts that were.
"""

import concurrent.futures
import http.server
import json
import os
import signal
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "true"

import tokenizers


def tokenizer():
    """Every character of printable ASCII is a token: its counts need no tokenizer to be known."""
    vocabulary = {chr(code): index for index, code in enumerate(range(32, 127))}
    model = tokenizers.models.BPE(vocab=vocabulary, merges=[])
    return tokenizers.Tokenizer(model)


TOKENIZER = tokenizer()
POOL = concurrent.futures.ThreadPoolExecutor(max_workers=4)
ENCODED = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/encoded":
            self.answer(ENCODED)
        elif self.path == "/threads":
            self.answer({"texts": threads()})
        else:
            self.answer({})

    def do_POST(self):
        self.answer(completion(json.loads(self.rfile.read(int(self.headers["content-length"])))))

    def answer(self, document):
        text = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def encode(text):
    begin = time.monotonic()
    count = len(TOKENIZER.encode(text).ids)
    return count, time.monotonic() - begin


def completion(body):
    # Not in the thread that read the request: as servers do that must not keep their event loop waiting.
    count, seconds = POOL.submit(encode, body["prompt"]).result()
    ENCODED[body["user"]] = seconds
    return {
        "id": body["user"],
        "object": "text_completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "text": "a", "finish_reason": "length"}],
        "usage": {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1},
    }


def threads():
    texts = ["x" * length for length in range(1, 41)]
    counts = [count for count, _ in POOL.map(encode, texts)]
    for function in (TOKENIZER.encode_batch, TOKENIZER.encode_batch_fast):
        for batch in POOL.map(function, [texts] * 3):
            counts += [len(encoding.ids) for encoding in batch]
    assert counts == list(range(1, 41)) * 7
    return len(counts)


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
server.serve_forever()
