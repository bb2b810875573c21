"""Writes the fixtures of this folder: messages between SGLang's tokenizer manager, scheduler and detokenizer.

Unpack released wheels (`pip download --no-deps sglang==X`, then unzip) into RELEASES/X, and run, with the interpreter of
an environment that has torch, msgspec, pydantic and pyzmq,

    python agent/core/testdata/sglang/generate.py RELEASES

`made: released` messages are built and encoded by a release's own classes; the release's other modules, which need a
GPU's libraries, are replaced by empty ones, which leaves the message classes as they are. `made: layout` messages are
built by msgspec from the field orders in `agent/core/src/engine/sglang/layouts.json`. `streams.json` holds what libzmq
put on a Unix socket for the messages of the newest release, both encodings, seen from the process that binds.
"""

import ast
import importlib
import importlib.util
import json
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from array import array
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LAYOUTS = HERE / "../../src/engine/sglang/layouts.json"
RELEASED = ["0.5.23", "0.5.14", "0.5.6", "0.4.10.post2"]
PROMPT = [1, 4093, 198, 2683, 418, 70000] * 9
RID = "1f0c7d5a9b8e4c62a1b2c3d4e5f60718"
OTHER = "77aa77aa77aa77aa77aa77aa77aa77aa"
# Seconds of CLOCK_MONOTONIC, which is what `time.perf_counter` reads on Linux.
QUEUED, SCHEDULED, PREFILLED = 100.5, 100.75, 101.0


class Quiet(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Stub(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        quiet = {"__module__": self.__name__, "__init__": lambda self, *a, **k: None, "__bool__": lambda self: False}
        setattr(self, name, Quiet(name, (), quiet))
        return getattr(self, name)


def imported_by(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return [name for name in names if name.startswith("sglang.")]


def load(root: Path, name: str) -> Any:
    """A module of the release: as it is, else from its file alone."""
    if name in sys.modules and not isinstance(sys.modules[name], Stub):
        return sys.modules[name]
    path = root.joinpath(*name.split(".")).with_suffix(".py")
    for needed in imported_by(path):
        parts = needed.split(".")
        for end in range(1, len(parts) + 1):
            stub = Stub(".".join(parts[:end]))
            stub.__path__ = []
            sys.modules.setdefault(stub.__name__, stub)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def modules(root: Path) -> tuple[Any, Any, Any]:
    sys.path.insert(0, str(root))
    names = ["sglang.srt.sampling.sampling_params", "sglang.srt.observability.req_time_stats", "sglang.srt.managers.io_struct"]
    if root.joinpath("sglang/srt/utils/msgpack_utils.py").exists():
        import msgspec

        # Only the encoder is needed, and the decoder would look at every type.
        msgspec.msgpack.Decoder = lambda *_, **__: None
        for name in ("sglang.srt.environ", "sglang.srt.utils.msgpack_utils", "sglang.srt.utils.msgspec_utils"):
            load(root, name)
    has_stats = root.joinpath(*names[1].split(".")).with_suffix(".py").exists()
    sampling = load(root, names[0])
    stats = load(root, names[1]) if has_stats else None
    return sampling, stats, load(root, names[2])


def fill(kind: Any, **values: Any) -> Any:
    """An instance with `None` for every field that has no default and is not given; unknown ones are left out."""
    if hasattr(kind, "__struct_fields__"):
        import msgspec

        fields = {f.name: f.required for f in msgspec.structs.fields(kind)}
    else:
        import dataclasses

        missing = dataclasses.MISSING
        fields = {f.name: f.default is missing and f.default_factory is missing for f in dataclasses.fields(kind)}
    given = {name: value for name, value in values.items() if name in fields}
    return kind(**{**{name: None for name, required in fields.items() if required}, **given})


def expected_output(rid: str, finished: str | None, prompt: int, total: int, cached: int, more: dict) -> dict:
    return {"rid": rid, "finished": finished, "prompt": prompt, "output": total, "cached": cached, "reasoning": None,
            "retractions": None, "queued": None, "scheduled": None, "prefilled": None, **more}


def of_release(loaded: tuple, version: str, as_pickle: bool) -> list[dict]:
    sampling, stats_module, io = loaded
    # What SGLANG_USE_PICKLE_IPC decides when the module is loaded.
    io._USE_PICKLE_IPC = as_pickle
    newer = hasattr(io.TokenizedGenerateReqInput, "__struct_fields__")
    ids = array("q", PROMPT) if newer else PROMPT
    sequence = (lambda values: array("q", values)) if newer else list
    encode = (lambda m: pickle.dumps(m, protocol=pickle.HIGHEST_PROTOCOL)) if as_pickle else io.msgpack_encode
    wrap = io.wrap_as_pickle if hasattr(io, "wrap_as_pickle") else lambda value: value

    def stats(on: bool, prefilled: float = PREFILLED) -> Any:
        value = stats_module.SchedulerReqTimeStats(enable_metrics=on)
        value.wait_queue_entry_time, value.forward_entry_time, value.prefill_finished_time = QUEUED, SCHEDULED, prefilled
        return value

    def request(rid: str) -> Any:
        parameters = sampling.SamplingParams(max_new_tokens=32, temperature=0.0)
        if hasattr(parameters, "watermark"):
            parameters.watermark = None
        return fill(io.TokenizedGenerateReqInput, rid=rid, input_text="a harmless prompt", input_ids=ids,
                    sampling_params=parameters, return_logprob=False,
                    logprob_start_len=-1, top_logprobs_num=0, stream=True)

    def outputs(kind: Any, rows: list[tuple], times: list | None) -> Any:
        rids, finished, new, prompt, total, cached, reasoning, retractions = (list(c) for c in zip(*rows))
        empty = [[] for _ in rids]
        values = dict(
            rids=rids, finished_reasons=finished, decoded_texts=["" for _ in rids], output_strs=["xy" for _ in rids],
            decode_ids=[sequence([5, 6, *n]) for n in new], output_ids=[sequence(n) for n in new], read_offsets=[2 for _ in rids],
            skip_special_tokens=[True for _ in rids], spaces_between_special_tokens=[True for _ in rids],
            no_stop_trim=[False for _ in rids], prompt_tokens=prompt, reasoning_tokens=reasoning, completion_tokens=total,
            cached_tokens=cached, input_token_logprobs_val=empty, retraction_counts=retractions, spec_verify_ct=[],
        )
        if stats_module is not None:
            values["time_stats"] = wrap(times)
        else:
            values["forward_entry_time"] = [SCHEDULED, 0.0][: len(rids)]
            values["queue_time"] = [SCHEDULED - QUEUED, 0.0][: len(rids)]
        return fill(kind, **values)

    has_times = stats_module is not None or "forward_entry_time" in getattr(io_class(io, "BatchTokenIDOutput"), "__dataclass_fields__", {})
    has_reasoning = "reasoning_tokens" in fields(io_class(io, "BatchTokenIDOutput"))
    has_retractions = "retraction_counts" in fields(io_class(io, "BatchTokenIDOutput"))
    at = ({"queued": QUEUED, "scheduled": SCHEDULED, "prefilled": PREFILLED if stats_module is not None else None}
          if has_times else {})

    def more(reasoning: int, retractions: int, times: dict) -> dict:
        return {**({"reasoning": reasoning} if has_reasoning else {}),
                **({"retractions": retractions} if has_retractions else {}), **times}

    first = [(RID, None, [11], 54, 1, 48, 0, 0), (OTHER, {"type": "stop", "matched": 2}, [7, 2], 9, 3, 0, 2, 1)]
    last = [(RID, {"type": "length", "length": 2}, [12], 54, 2, 48, 1, 0)]
    ids_class, text_class = io_class(io, "BatchTokenIDOutput"), io_class(io, "BatchStrOutput")
    first_facts = [expected_output(RID, None, 54, 1, 48, more(0, 0, at)),
                   expected_output(OTHER, "stop", 9, 3, 0, more(2, 1, {}))]
    last_facts = [expected_output(RID, "length", 54, 2, 48, more(1, 0, at))]
    unmeasured = [stats(True), stats(False)] if stats_module is not None else None
    measured = [stats(True)] if stats_module is not None else None
    encoding = "pickle" if as_pickle else "msgpack"
    messages = [
        ("request", request(RID), "out", {"added": [{"rid": RID, "prompt": 54}]}),
        ("first tokens", outputs(ids_class, first, unmeasured), "in", {"outputs": first_facts}),
        ("last token", outputs(ids_class, last, measured), "in", {"outputs": last_facts}),
        ("text", outputs(text_class, last, measured), "in", {"outputs": last_facts}),
        ("abort", io.AbortReq(rid=OTHER) if version != "0.4.10.post2" else io.AbortReq(OTHER), "out", {"aborted": OTHER}),
        ("other", fill(io.FlushCacheReqInput), "out", {"nothing": None}),
    ]
    if hasattr(io, "BatchTokenizedGenerateReqInput"):
        batch = fill(io.BatchTokenizedGenerateReqInput, batch=[request(RID), request(OTHER)])
        messages.append(("batch", batch, "out", {"added": [{"rid": rid, "prompt": 54} for rid in (RID, OTHER)]}))
    return [{"name": name, "version": version, "made": "released", "encoding": encoding, "side": side,
             "body": bytes(encode(message)).hex(), "expect": expect} for name, message, side, expect in messages]


def fields(kind: Any) -> list[str]:
    return list(getattr(kind, "__struct_fields__", None) or kind.__dataclass_fields__)


def io_class(io: Any, name: str) -> Any:
    return getattr(io, name, None) or getattr(io, name.removesuffix("put"))


def of_layouts(newest: list[dict]) -> list[dict]:
    """The newest release's messages again, in the field order of each earlier one."""
    import msgspec

    layouts = json.loads(LAYOUTS.read_text())
    rows = []
    for made in newest:
        body = msgspec.msgpack.decode(bytes.fromhex(made["body"]))
        if (name := body[0]) not in layouts:
            continue
        values = dict(zip(layouts[name][-1]["fields"], body[1:], strict=True))
        for layout in layouts[name][:-1]:
            array_ = [name] + [values.get(field) for field in layout["fields"]]
            rows.append({**made, "version": layout["from"], "made": "layout", "body": msgspec.msgpack.encode(array_).hex()})
    return rows


def record(kind: int, bodies: list[bytes]) -> dict:
    """What two real sockets of libzmq say to each other, seen from the one that binds: `in` it reads, `out` it writes."""
    import zmq

    seen = {"in": bytearray(), "out": bytearray()}
    with tempfile.TemporaryDirectory() as folder:
        context = zmq.Context()
        server = context.socket(kind)
        server.bind(f"ipc://{folder}/server")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/tap")
        listener.listen()
        client = context.socket(zmq.PUSH if kind == zmq.PULL else zmq.PULL)
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
        sender, receiver = (client, server) if kind == zmq.PULL else (server, client)
        for body in bodies:
            sender.send(body)
        for _ in bodies:
            receiver.recv()
        time.sleep(0.1)
        return {direction: bytes(data).hex() for direction, data in seen.items()}


def main(releases: Path) -> None:
    rows = []
    for version in RELEASED:
        command = [sys.executable, "-W", "ignore", __file__, str(releases), version]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        rows += json.loads(done.stdout.splitlines()[-1])
    newest = [row for row in rows if row["encoding"] == "msgpack"]
    write("messages.json", rows + of_layouts(newest))

    import zmq

    streams = []
    for encoding in ("pickle", "msgpack"):
        for side, kind in (("out", zmq.PUSH), ("in", zmq.PULL)):
            bodies = [bytes.fromhex(row["body"]) for row in rows
                      if (row["version"], row["encoding"], row["side"]) == (RELEASED[0], encoding, side)]
            streams.append({"name": "requests" if side == "out" else "outputs", "encoding": encoding, "side": side,
                            **record(kind, bodies)})
    write("streams.json", streams)


def write(name: str, rows: list[dict]) -> None:
    lines = ",\n".join(json.dumps(row) for row in rows)
    (HERE / name).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        root, version = sys.argv[1:]
        loaded = modules(Path(root) / version)
        both = (True, False) if version == RELEASED[0] else (True,)
        print(json.dumps([row for as_pickle in both for row in of_release(loaded, version, as_pickle)]))
        sys.stdout.flush()
    else:
        main(Path(sys.argv[1]).absolute())
    os._exit(0)
