"""Calls a tokenizer in a loop: call_cost.py, with the Python that has tokenizers. The text is as short as can be, so that
what probes add stands out.

For every line on its standard input it answers with one line of JSON: nanoseconds a call, by the name of the function.
"""

import json
import statistics
import sys
import time

import tokenizers

CALLS = 500
TIMES = 21


def encode(text):
    """Calls of Hugging Face's `Tokenizer.encode`; every character of printable ASCII is a token."""
    vocabulary = {chr(code): index for index, code in enumerate(range(32, 127))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    assert len(tokenizer.encode(text).ids) == len(text)
    return lambda: tokenizer.encode(text)


def nanoseconds(call):
    """The median of several loops: what interrupts one of them is no cost of a call."""
    loops = []
    for _ in range(TIMES):
        begin = time.monotonic_ns()
        for _ in range(CALLS):
            call()
        loops.append((time.monotonic_ns() - begin) / CALLS)
    return statistics.median(loops)


calls = {"hf_tokenizers_encode": encode("a")}
print("{}", flush=True)
for line in sys.stdin:
    print(json.dumps({name: nanoseconds(call) for name, call in calls.items()}), flush=True)
