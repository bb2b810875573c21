"""Calls tokenizers in a loop: call_cost.py MODEL.gguf, with the Python that has xllamacpp and tokenizers. Their texts are as
short as can be, so that what probes add stands out: llama.cpp's is empty, because one letter takes it 50 us.

For every line on its standard input it answers with one line of JSON: nanoseconds a call, by the name of the function.
"""

import ctypes
import json
import statistics
import sys
import time

import tokenizers
import xllamacpp.xllamacpp as wheel

CALLS = 500
TIMES = 21


class ModelParameters(ctypes.Structure):
    """`llama_model_params`, which goes by value and only back to where it came from: more room than it takes."""

    _fields_ = [("opaque", ctypes.c_char * 1024)]


def llama_tokenize(model):
    """Calls of `llama_tokenize` in the library that llama.cpp's server here is."""
    library = ctypes.CDLL(wheel.__file__)
    library.llama_model_default_params.restype = ModelParameters
    library.llama_model_load_from_file.restype = ctypes.c_void_p
    library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, ModelParameters]
    library.llama_model_get_vocab.restype = ctypes.c_void_p
    library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    library.llama_backend_init()
    parameters = library.llama_model_default_params()
    loaded = library.llama_model_load_from_file(model.encode(), parameters)
    vocabulary = library.llama_model_get_vocab(loaded)
    tokens = (ctypes.c_int32 * 4096)()
    call = library.llama_tokenize
    call.restype = ctypes.c_int32
    call.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int32,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_bool,
        ctypes.c_bool,
    ]
    arguments = (vocabulary, b"", 0, ctypes.addressof(tokens), 4096, False, False)
    assert call(*arguments) == 0
    return lambda: call(*arguments)


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


calls = {"llama_tokenize": llama_tokenize(sys.argv[1]), "hf_tokenizers_encode": encode("a")}
print("{}", flush=True)
for line in sys.stdin:
    print(json.dumps({name: nanoseconds(call) for name, call in calls.items()}), flush=True)
