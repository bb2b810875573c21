"""Writes down what vLLM itself knows: one JSON line for each request that ends and for each step of the scheduler.

Every Python process of an engine loads this when its folder is on PYTHONPATH; INFERTAP_VLLM_TRUTH names the file. The
released classes do their own work first; only what they then hold is written, stamped by time.monotonic(), which is the
clock of the agent's records. Nothing is written in any other process, and the installation is left as it is."""

import importlib.abc
import json
import os
import sys
import time

PATH = os.environ.get("INFERTAP_VLLM_TRUTH")
# The front end reads the engine core's messages one after another, so the latest stamp is that of the latest step.
stamp = None
opened = {}


def write(**line):
    pid = os.getpid()
    if pid not in opened:
        opened[pid] = os.open(PATH, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    line["at"] = time.monotonic()
    # One write a line: processes share the file.
    os.write(opened[pid], (json.dumps(line) + "\n").encode())


def request(kind, state):
    stats = state.stats
    write(
        kind=kind,
        id=state.external_req_id,
        engine_id=state.request_id,
        input_tokens=state.prompt_len,
        cached_tokens=None if state.is_prefilling else state.num_cached_tokens,
        output_tokens=stats.num_generation_tokens,
        queued=stats.queued_ts or None,
        scheduled=stats.scheduled_ts or None,
        first_token=stats.first_token_ts or None,
        last_token=stats.last_token_ts or None,
        preemptions=stats.num_preemptions,
    )


def output_processor(module):
    """In the front end: its state of each request, when that ends."""
    cls = module.OutputProcessor
    process, finish, abort = cls.process_outputs, cls._finish_request, cls.abort_requests

    def process_outputs(self, outputs, timestamp=None, *args, **kwargs):
        global stamp
        stamp = timestamp
        return process(self, outputs, timestamp, *args, **kwargs)

    def finish_request(self, state):
        finish(self, state)
        request("finished", state)

    def abort_requests(self, request_ids, internal):
        before = dict(self.request_states)
        aborted = abort(self, request_ids, internal)
        for engine_id in before.keys() - self.request_states.keys():
            request("aborted", before[engine_id])
        return aborted

    cls.process_outputs = process_outputs
    cls._finish_request = finish_request
    cls.abort_requests = abort_requests


def loggers(module):
    """In the front end: what the scheduler said of itself after a step."""
    cls = module.StatLoggerManager
    record = cls.record

    def recorded(self, scheduler_stats, *args, **kwargs):
        record(self, scheduler_stats, *args, **kwargs)
        if scheduler_stats is not None:
            write(
                kind="step",
                stamp=stamp,
                running=scheduler_stats.num_running_reqs,
                waiting=scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs,
                kv_usage=scheduler_stats.kv_cache_usage,
            )

    cls.record = recorded


def scheduler(module):
    """In the engine core: what it had made of a request that it was told to end."""
    cls = module.Scheduler
    finish = cls.finish_requests

    def finish_requests(self, request_ids, *args, **kwargs):
        before = dict(self.requests)
        result = finish(self, request_ids, *args, **kwargs)
        for engine_id, state in before.items():
            if state.is_finished():
                write(kind="stopped", engine_id=engine_id, output_tokens=state.num_output_tokens)
        return result

    cls.finish_requests = finish_requests


HOOKS = {
    "vllm.v1.engine.output_processor": output_processor,
    "vllm.v1.metrics.loggers": loggers,
    "vllm.v1.core.sched.scheduler": scheduler,
}


class Finder(importlib.abc.MetaPathFinder):
    """Lets the usual finders find, and has the hook run behind the module's own code."""

    def find_spec(self, name, path, target=None):
        hook = HOOKS.pop(name, None)
        if hook is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                run = spec.loader.exec_module

                def exec_module(module):
                    run(module)
                    hook(module)

                spec.loader.exec_module = exec_module
                return spec
        return None


if PATH:
    sys.meta_path.insert(0, Finder())
