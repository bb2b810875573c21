"""Writes the fixtures of this folder: messages between vLLM's API server and its engine core.

Run it with the interpreter of an environment that has vLLM installed:

    python agent/core/testdata/vllm/generate.py

`made: released` messages are built from the installed release's own classes and encoder. `made: layout` messages are
built by msgspec from the field orders in `agent/core/src/engine/vllm/layouts.json`, for releases that are not
installed; their values are the same, so every release must give the same facts. `streams.json` holds what libzmq really
put on a Unix socket for the released ones, both directions.
"""

import json
import os
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq

HERE = Path(__file__).parent
LAYOUTS = json.loads((HERE / "../../src/engine/vllm/layouts.json").read_text())
PROMPT = [1, 4093, 198, 2683, 418, 70000] * 9
EXTERNAL = "chatcmpl-1f0c7d5a9b8e4c62"
ADDED = {"engine_id": EXTERNAL + "-a1b2c3d4", "prompt_tokens": 54, "max_tokens": 32, "arrival": 1796000000.25}
OTHER = "cmpl-77aa-0"


def version_key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def fields_of(struct: str, version: str) -> list[str]:
    rows = [row for row in LAYOUTS[struct] if version_key(row["from"]) <= version_key(version)]
    return rows[-1]["fields"]


# Defaults of the released structs; a field that is not here has none.
DEFAULTS: dict[str, Any] = {
    "prompt_embeds": None, "prompt_is_token_ids": None, "client_index": 0, "current_wave": 0, "priority": 0,
    "trace_headers": None, "resumable": False, "external_req_id": None, "reasoning_ended": None,
    "reasoning_parser_kwargs": None, "abort_immediately": False, "session_id": None, "kv_hints": None,
    "new_logprobs": None, "new_prompt_logprobs_tensors": None, "pooling_output": None, "finish_reason": None,
    "stop_reason": None, "events": None, "kv_transfer_params": None, "ec_transfer_params": None,
    "num_cached_tokens": 0, "num_external_computed_tokens": 0, "prefill_stats": None, "routed_experts": None,
    "num_nans_in_logits": 0, "mm_cache_miss_hashes": None, "new_sampling_mask": None, "spec_decode_metrics": None,
    "prompt_token_id_logprobs": None, "engine_index": 0, "outputs": [], "scheduler_stats": None, "timestamp": 0.0,
    "utility_output": None, "finished_requests": None, "wave_complete": None, "start_wave": None,
    "weight_version": None,
}


def struct(name: str, version: str, **values: Any) -> Any:
    order = fields_of(name, version)
    # From the first default on, all have one: fields that once had none come first.
    spec = [(f, Any, DEFAULTS[f]) if f in DEFAULTS else (f, Any) for f in order]
    kind = msgspec.defstruct(name, spec, array_like=True, omit_defaults=True, kw_only=True)
    for field in order:
        if field not in DEFAULTS:
            values.setdefault(field, None)
    return kind(**{k: v for k, v in values.items() if k in order})


def body_hex(message: Any) -> str:
    return msgspec.msgpack.encode(message).hex()


def from_layout(version: str) -> list[dict[str, Any]]:
    has_prefill_stats = "prefill_stats" in fields_of("EngineCoreOutput", version)
    has_cached = "num_cached_tokens" in fields_of("EngineCoreOutput", version)
    has_external = "external_req_id" in fields_of("EngineCoreRequest", version)
    old = version_key(version) < version_key("0.9.2")
    request = struct(
        "EngineCoreRequest", version, request_id=ADDED["engine_id"], prompt_token_ids=PROMPT,
        sampling_params={"temperature": 0.0, "max_tokens": 32}, eos_token_id=2, arrival_time=ADDED["arrival"],
        external_req_id=EXTERNAL, priority=3,
    )
    prefill = {
        "num_prompt_tokens": 54, "num_computed_tokens": 6, "num_cached_tokens": 48, "num_local_cached_tokens": 48,
        "num_external_cached_tokens": 0,
    }
    first = struct(
        "EngineCoreOutput", version, request_id=ADDED["engine_id"], new_token_ids=[11],
        events=[{"type": 1, "timestamp": 100.5}, {"type": 2, "timestamp": 100.75}],
        prefill_stats=prefill, num_cached_tokens=48,
    )
    other = struct(
        "EngineCoreOutput", version, request_id=OTHER, new_token_ids=[5, 6], finish_reason=0, stop_reason="END",
        events=[{"type": 3, "timestamp": 99.0}],
    )
    stats = {
        "num_running_reqs": 2, "num_waiting_reqs": 5, "gpu_cache_usage" if old else "kv_cache_usage": 0.25,
        "prefix_cache_stats": {"reset": False, "requests": 1, "queries": 54, "hits": 48},
        "spec_decoding_stats": None,
    }
    step = struct(
        "EngineCoreOutputs", version, outputs=[first, other], scheduler_stats=stats, timestamp=101.0,
        finished_requests=[OTHER],
    )
    return [
        message("add", version, "layout", "requests", ["00", body_hex(request)],
                {"added": {**ADDED, "external_id": EXTERNAL if has_external else None}}),
        message("step", version, "layout", "outputs", [body_hex(step)],
                {"step": step_facts(48 if has_prefill_stats or has_cached else None,
                                    54 if has_prefill_stats else None, 0 if has_cached else None)}),
    ]


def step_facts(cached: int | None, prompt: int | None, others_cached: int | None = None) -> dict[str, Any]:
    return {
        "engine_index": 0, "timestamp": 101.0,
        "outputs": [
            {"engine_id": ADDED["engine_id"], "new_tokens": 1, "finish": None, "stop": None, "events": [[1, 100.5], [2, 100.75]],
             "cached": cached, "prompt": prompt},
            {"engine_id": OTHER, "new_tokens": 2, "finish": "stop", "stop": "END", "events": [[3, 99.0]],
             "cached": others_cached, "prompt": None},
        ],
        "stats": {"running": 2, "waiting": 5, "kv_usage": 0.25, "queries": 54, "hits": 48},
    }


def message(name: str, version: str, made: str, stream: str, parts: list[str], expect: Any) -> dict[str, Any]:
    return {"name": name, "version": version, "made": made, "stream": stream, "parts": parts, "expect": expect}


def released() -> list[dict[str, Any]]:
    import torch
    import vllm
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import (
        EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason,
        UtilityOutput,
    )
    from vllm.v1.metrics.stats import PrefillStats, PrefixCacheStats, SchedulerStats
    from vllm.v1.serial_utils import MsgpackEncoder, UtilityResult

    encoder = MsgpackEncoder()
    version = vllm.__version__

    def parts(message: Any) -> list[str]:
        return [bytes(part).hex() for part in encoder.encode(message)]

    def request(**more: Any) -> EngineCoreRequest:
        base = dict(
            request_id=ADDED["engine_id"], prompt_token_ids=PROMPT, mm_features=None,
            sampling_params=SamplingParams(max_tokens=32, temperature=0.0), pooling_params=None,
            arrival_time=ADDED["arrival"], lora_request=None, cache_salt=None, data_parallel_rank=None,
        )
        return EngineCoreRequest(**{**base, **more})

    def events(*pairs: tuple[int, float]) -> list[EngineCoreEvent]:
        return [EngineCoreEvent(EngineCoreEventType(kind), at) for kind, at in pairs]

    plain = {**ADDED, "external_id": EXTERNAL}
    first = EngineCoreOutput(ADDED["engine_id"], [11], events=events((1, 100.5), (2, 100.75)))
    first.prefill_stats = PrefillStats(num_prompt_tokens=54, num_computed_tokens=6, num_cached_tokens=48,
                                       num_local_cached_tokens=48)
    other = EngineCoreOutput(OTHER, [5, 6], finish_reason=FinishReason.STOP, stop_reason="END",
                             events=events((3, 99.0)))
    stats = SchedulerStats(num_running_reqs=2, num_waiting_reqs=5, kv_cache_usage=0.25,
                           prefix_cache_stats=PrefixCacheStats(requests=1, queries=54, hits=48))
    quiet = EngineCoreOutput(ADDED["engine_id"], [12])
    last = EngineCoreOutput(ADDED["engine_id"], [], finish_reason=FinishReason.LENGTH)
    none = {"finish": None, "stop": None, "events": [], "cached": None, "prompt": None}
    return [
        message("add", version, "released", "requests", ["00"] + parts(request(external_req_id=EXTERNAL)),
                {"added": plain}),
        message("add with adapter, priority and trace", version, "released", "requests",
                ["00"] + parts(request(external_req_id=EXTERNAL, priority=-2, client_index=3,
                                       lora_request=LoRARequest("sql", 7, "/adapters/sql"),
                                       trace_headers={"traceparent": "00-1-2-01"}, cache_salt="salt")),
                {"added": plain}),
        message("add without a bound, no outer id", version, "released", "requests",
                ["00"] + parts(request(sampling_params=SamplingParams(max_tokens=None))),
                {"added": {**ADDED, "external_id": None, "max_tokens": None}}),
        message("add with the default bound", version, "released", "requests",
                ["00"] + parts(request(sampling_params=SamplingParams(), external_req_id=EXTERNAL)),
                {"added": {**plain, "max_tokens": 16}}),
        message("add with prompt embeddings", version, "released", "requests",
                ["00"] + parts(request(external_req_id=EXTERNAL, prompt_token_ids=None,
                                       prompt_embeds=torch.zeros(40, 64))),
                {"added": {**plain, "prompt_tokens": None}}),
        message("abort", version, "released", "requests", ["01"] + parts([ADDED["engine_id"], OTHER]),
                {"aborted": [ADDED["engine_id"], OTHER]}),
        message("utility call", version, "released", "requests",
                ["03"] + parts((0, 17, "is_sleeping", ())), {"nothing": None}),
        message("step", version, "released", "outputs",
                parts(EngineCoreOutputs(outputs=[first, other], scheduler_stats=stats, timestamp=101.0,
                                        finished_requests={OTHER})),
                {"step": step_facts(48, 54)}),
        message("step of a second engine without statistics", version, "released", "outputs",
                parts(EngineCoreOutputs(engine_index=1, outputs=[quiet, last], timestamp=102.5)),
                {"step": {"engine_index": 1, "timestamp": 102.5, "stats": None, "outputs": [
                    {"engine_id": ADDED["engine_id"], "new_tokens": 1, **none},
                    {"engine_id": ADDED["engine_id"], "new_tokens": 0, **none, "finish": "length"}]}}),
        message("utility answer", version, "released", "outputs",
                parts(EngineCoreOutputs(utility_output=UtilityOutput(17, result=UtilityResult(False)),
                                        timestamp=103.0)),
                {"step": {"engine_index": 0, "timestamp": 103.0, "stats": None, "outputs": []}}),
    ]


def record(server_kind: int, client_kind: int, from_server: list[list[bytes]], from_client: list[list[bytes]]) -> dict:
    """What two real sockets of libzmq say to each other, seen from the one that binds: `in` it reads, `out` it writes."""
    seen = {"in": bytearray(), "out": bytearray()}
    with tempfile.TemporaryDirectory() as folder:
        context = zmq.Context()
        server = context.socket(server_kind)
        server.bind(f"ipc://{folder}/server")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/tap")
        listener.listen()
        client = context.socket(client_kind)
        if client_kind == zmq.DEALER:
            client.setsockopt(zmq.IDENTITY, b"\x00\x00")
        client.connect(f"ipc://{folder}/tap")
        outer, _ = listener.accept()
        inner = socket.socket(socket.AF_UNIX)
        inner.connect(f"{folder}/server")

        def pump(source: socket.socket, sink: socket.socket, into: bytearray) -> None:
            while data := source.recv(65536):
                into.extend(data)
                sink.sendall(data)

        for arguments in ((outer, inner, seen["in"]), (inner, outer, seen["out"])):
            threading.Thread(target=pump, args=arguments, daemon=True).start()
        for parts in from_client:
            client.send_multipart(parts)
        if client_kind == zmq.DEALER:
            identity, *_ = server.recv_multipart()
            for parts in from_server:
                server.send_multipart([identity, *parts])
            for _ in from_server:
                client.recv_multipart()
        else:
            for _ in from_client:
                server.recv_multipart()
        time.sleep(0.1)
        result = {direction: bytes(data).hex() for direction, data in seen.items()}
    return result


def main() -> None:
    own = released()
    versions = [
        "0.8.5", "0.9.2", "0.10.2", "0.11.2", "0.14.1", "0.16.0", "0.17.1", "0.20.2", "0.22.1", "0.26.0", "0.28.0", "0.30.0",
    ]
    built = [m for version in versions for m in from_layout(version)]
    write("messages.json", own + built)

    def raw(stream: str) -> list[list[bytes]]:
        return [[bytes.fromhex(part) for part in m["parts"]] for m in own if m["stream"] == stream]

    write("streams.json", [
        {"name": "requests", "side": "out", **record(zmq.ROUTER, zmq.DEALER, raw("requests"), [[b""]])},
        {"name": "outputs", "side": "in", **record(zmq.PULL, zmq.PUSH, [], raw("outputs"))},
    ])


def write(name: str, rows: list[dict]) -> None:
    lines = ",\n".join(json.dumps(row) for row in rows)
    (HERE / name).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
    os._exit(0)
