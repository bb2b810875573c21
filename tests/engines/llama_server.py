"""A llama.cpp server in one process: llama_server.py MODEL.gguf NAME PORT [PARAMETER=NUMBER...], with the Python that has
xllamacpp."""

import signal
import sys

import xllamacpp

model, name, port = sys.argv[1:4]
params = xllamacpp.CommonParams()
params.model.path = model
params.model_alias = {name}
params.hostnames = ["127.0.0.1"]
params.port = int(port)
params.n_ctx = 16384
params.n_parallel = 4
params.cpuparams.n_threads = 1
params.endpoint_metrics = True
for setting in sys.argv[4:]:
    parameter, number = setting.split("=")
    setattr(params, parameter, int(number))
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    signal.pause()
