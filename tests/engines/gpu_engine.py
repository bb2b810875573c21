"""A small serving engine on a GPU that keeps an account of itself: gpu_engine.py PORT DEVICE.

DEVICE is `torch` (a decoder with random weights on the first GPU, prompts kernel by kernel, generation as a captured graph)
or `driver` (nothing computes: the same calls go to whatever libcuda.so.1 the loader finds).

POST /v1/completions streams tokens, one write each. A batch has SLOTS places; who finds none waits. Every step reads one
prompt or generates one token for all that run. GET /account tells when the engine did what, GET /known makes known numbers
of calls, and GET /profiled lets torch's profiler count launches. Times are CLOCK_MONOTONIC nanoseconds.
"""

import collections
import http.server
import json
import os
import queue
import signal
import sys
import threading
import time
import urllib.parse

import gpu_device

SLOTS = gpu_device.SLOTS


class Request:
    def __init__(self, body):
        self.id = f"cmpl-{time.monotonic_ns():x}"
        # Every word is a token: its counts need no tokenizer to be known.
        words = body["prompt"].split()[: gpu_device.CONTEXT // 2]
        self.prompt = [hash(word) % gpu_device.VOCABULARY for word in words]
        self.limit = max(1, min(int(body.get("max_tokens", 16)), gpu_device.CONTEXT // 2 - 1))
        self.tokens = queue.SimpleQueue()
        self.account = {
            "id": self.id,
            "queued_ns": time.monotonic_ns(),
            "prompt_tokens": len(self.prompt),
            "output_tokens": 0,
        }

    def token(self, at):
        self.account.setdefault("first_ns", at)
        self.account["last_ns"] = at
        self.account["output_tokens"] += 1
        self.tokens.put(self.account["output_tokens"] == self.limit)


class Engine(threading.Thread):
    """The scheduler: the one thread that uses the device."""

    def __init__(self, device):
        super().__init__(daemon=True)
        self.device = device
        self.work = threading.Condition()
        self.waiting = collections.deque()
        self.jobs = collections.deque()
        self.running = {}
        self.requests = []
        self.steps = []

    def submit(self, request):
        with self.work:
            self.waiting.append(request)
            self.work.notify()

    def alone(self, job):
        """Has the engine's thread do something while it serves nobody; what came of it."""
        answer = queue.SimpleQueue()
        with self.work:
            self.jobs.append((job, answer))
            self.work.notify()
        return answer.get()

    def run(self):
        while True:
            with self.work:
                while not (self.waiting or self.running or self.jobs):
                    self.work.wait()
                admit = self.waiting.popleft() if self.waiting and len(self.running) < SLOTS else None
                job = self.jobs.popleft() if self.jobs and not (admit or self.running) else None
            if admit:
                self.prefill(admit)
            elif job:
                job[1].put(job[0]())
            else:
                self.decode()

    def prefill(self, request):
        slot = next(slot for slot in range(SLOTS) if slot not in self.running)
        begin = time.monotonic_ns()
        request.account["scheduled_ns"] = begin
        self.device.prefill(slot, request.prompt)
        end = time.monotonic_ns()
        self.steps.append({"kind": "prefill", "begin_ns": begin, "end_ns": end, "requests": 1})
        self.running[slot] = request
        self.tell(slot, end)

    def decode(self):
        begin = time.monotonic_ns()
        self.device.decode()
        end = time.monotonic_ns()
        self.steps.append(
            {"kind": "decode", "begin_ns": begin, "end_ns": end, "requests": len(self.running)}
        )
        for slot in list(self.running):
            self.tell(slot, end)

    def tell(self, slot, at):
        request = self.running[slot]
        request.token(at)
        if request.account["output_tokens"] == request.limit:
            self.requests.append(request.account)
            del self.running[slot]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A response's head and its first token are two writes.
    disable_nagle_algorithm = True

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        asked = {name: int(value) for name, value in urllib.parse.parse_qsl(url.query)}
        engine = self.server.engine
        if url.path == "/account":
            self.answer({"requests": engine.requests, "steps": engine.steps})
        elif url.path == "/known":
            self.answer(engine.alone(lambda: engine.device.known(**asked)))
        elif url.path == "/profiled":
            self.answer(engine.alone(engine.device.profiled))
        elif url.path == "/v1/models":
            self.answer({"object": "list", "data": [{"id": "gpu-check", "object": "model"}]})
        else:
            self.answer({"device": engine.device.description})

    def do_POST(self):
        request = Request(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.server.engine.submit(request)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        done = False
        while not done:
            done = request.tokens.get()
            choice = {"index": 0, "text": " word", "finish_reason": "length" if done else None}
            self.event(request, [choice], None)
        account = request.account
        usage = {
            "prompt_tokens": account["prompt_tokens"],
            "completion_tokens": account["output_tokens"],
            "total_tokens": account["prompt_tokens"] + account["output_tokens"],
        }
        self.event(request, [], usage)
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, request, choices, usage):
        event = {
            "id": request.id,
            "object": "text_completion",
            "created": 1,
            "model": "gpu-check",
            "choices": choices,
        }
        if usage:
            event["usage"] = usage
        self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def answer(self, document):
        text = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


port, kind = sys.argv[1:]
# A thread that has to write a token waits for the interpreter no longer than this.
sys.setswitchinterval(0.0005)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
server.daemon_threads = True
server.engine = Engine(gpu_device.device(kind))
server.engine.start()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
server.serve_forever()
