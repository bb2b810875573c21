"""What gpu_engine.py computes with: a decoder in PyTorch, or the bare calls of the CUDA driver.

Both have the same functions: prefill and decode as an engine calls them, and calls of which the number is known.
"""

import ctypes
import sys
import time

SLOTS = 4
CONTEXT = 1024
VOCABULARY = 32000
LAYERS = 12
WIDTH = 2048
HEADS = 16


def device(kind):
    return {"torch": Torch, "driver": Driver}[kind]()


class Torch:
    """A decoder of about 0.8 billion parameters in half precision: 2.5 GB with its cache."""

    def __init__(self):
        try:
            import torch
        except ImportError as error:
            sys.exit(f"no PyTorch in {sys.executable}: {error}; install torch there, or name a Python that has it")
        if not torch.cuda.is_available():
            sys.exit(
                f"PyTorch {torch.__version__} in {sys.executable} finds no GPU that it can use; "
                "`nvidia-smi` and `python -c 'import torch; torch.cuda.init()'` tell why"
            )
        self.torch = torch
        properties = torch.cuda.get_device_properties(0)
        self.description = f"{properties.name}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
        torch.manual_seed(1)
        shape = {"device": "cuda", "dtype": torch.float16}

        def weight(*size):
            return torch.randn(*size, **shape) * 0.02

        self.embedding = weight(VOCABULARY, WIDTH)
        self.layers = [
            {
                "qkv": weight(WIDTH, 3 * WIDTH),
                "out": weight(WIDTH, WIDTH),
                "up": weight(WIDTH, 4 * WIDTH),
                "down": weight(4 * WIDTH, WIDTH),
                "keys": torch.zeros(SLOTS, HEADS, CONTEXT, WIDTH // HEADS, **shape),
                "values": torch.zeros(SLOTS, HEADS, CONTEXT, WIDTH // HEADS, **shape),
            }
            for _ in range(LAYERS)
        ]
        self.token = torch.zeros(SLOTS, dtype=torch.long, device="cuda")
        self.position = torch.zeros(SLOTS, dtype=torch.long, device="cuda")
        self.slots = torch.arange(SLOTS, device="cuda")
        self.places = torch.arange(CONTEXT, device="cuda")
        self.small = torch.zeros(1024, device="cuda")
        self.memory = torch.zeros(16 << 20, dtype=torch.uint8, device="cuda")
        self.pinned = torch.zeros(16 << 20, dtype=torch.uint8, pin_memory=True)
        with torch.no_grad():
            # Libraries load their kernels when they are first used.
            for length in (8, 64, 500):
                self.prefill(0, list(range(length)))
            self.graph = self.captured(self.step)
            self.small_graph = self.captured(lambda: self.small.add_(1))
        torch.cuda.synchronize()

    def captured(self, work):
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph

    def norm(self, x):
        return self.torch.nn.functional.rms_norm(x, (WIDTH,))

    def heads(self, x):
        return x.view(*x.shape[:-1], HEADS, WIDTH // HEADS)

    def prefill(self, slot, tokens):
        torch = self.torch
        attend = torch.nn.functional.scaled_dot_product_attention
        with torch.no_grad():
            length = len(tokens)
            x = self.embedding[torch.tensor(tokens, device="cuda")]
            for layer in self.layers:
                q, k, v = (self.heads(part).transpose(0, 1) for part in (self.norm(x) @ layer["qkv"]).chunk(3, -1))
                layer["keys"][slot, :, :length] = k
                layer["values"][slot, :, :length] = v
                mixed = attend(q[None], k[None], v[None], is_causal=True)[0]
                x = x + mixed.transpose(0, 1).reshape(length, WIDTH) @ layer["out"]
                x = x + torch.nn.functional.silu(self.norm(x) @ layer["up"]) @ layer["down"]
            token = (self.norm(x[-1]) @ self.embedding.T).argmax()
            self.token[slot] = token
            self.position[slot] = length
            return int(token)

    def step(self):
        torch = self.torch
        attend = torch.nn.functional.scaled_dot_product_attention
        with torch.no_grad():
            x = self.embedding[self.token]
            seen = (self.places[None, :] <= self.position[:, None])[:, None, None, :]
            for layer in self.layers:
                q, k, v = (self.heads(part) for part in (self.norm(x) @ layer["qkv"]).chunk(3, -1))
                layer["keys"][self.slots, :, self.position] = k
                layer["values"][self.slots, :, self.position] = v
                mixed = attend(q[:, :, None], layer["keys"], layer["values"], attn_mask=seen)
                x = x + mixed.reshape(SLOTS, WIDTH) @ layer["out"]
                x = x + torch.nn.functional.silu(self.norm(x) @ layer["up"]) @ layer["down"]
            self.token.copy_((self.norm(x) @ self.embedding.T).argmax(-1))
            self.position.add_(1).clamp_(max=CONTEXT - 1)

    def decode(self):
        self.graph.replay()
        return self.token.tolist()

    def known(self, kernels=0, graphs=0, copies=0, allocations=0, failures=0):
        torch = self.torch
        # What the call before allocated.
        self.kept = []
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        begin = time.monotonic_ns()
        for _ in range(kernels):
            self.small.add_(1)
        launched = time.monotonic_ns()
        for _ in range(graphs):
            self.small_graph.replay()
        replayed = time.monotonic_ns()
        for _ in range(copies):
            self.memory.copy_(self.pinned, non_blocking=True)
        torch.cuda.synchronize()
        self.kept = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(allocations)]
        allocated = torch.cuda.memory_reserved() - reserved
        for _ in range(failures):
            try:
                torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                continue
            sys.exit("32 TiB of GPU memory could be allocated")
        return {
            "kernels": kernels,
            "graphs": graphs,
            "host_to_device_bytes": copies * len(self.pinned),
            "allocated_bytes": allocated,
            "failures": failures,
            "kernel_ns": (launched - begin) / max(kernels, 1),
            "graph_ns": (replayed - launched) / max(graphs, 1),
        }

    def profiled(self):
        from torch.profiler import ProfilerActivity, profile

        prompts = [list(range(length)) for length in (16, 100, 400)]
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for prompt in prompts:
                self.prefill(0, prompt)
            self.torch.cuda.synchronize()
        on_gpu = [event.name for event in profiler.events() if event.device_type.name == "CUDA"]
        # Outside of graphs every kernel on the GPU is one launch.
        kernels = [name for name in on_gpu if not name.startswith(("Memcpy", "Memset"))]
        return {"kernels": len(kernels), "prompts": len(prompts)}


class Driver:
    """The driver's calls alone, in the pattern of the decoder, on the tests' stand-in driver: there a kernel takes as long as
    its name says."""

    PREFILL_KERNELS = 8 * LAYERS
    TOKEN_US = 200
    STEP_US = 4000

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.description = "the CUDA driver's calls, without PyTorch"
        gpu, context, self.module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(gpu), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), gpu)
        self.context = context
        self.enter()
        self.call("cuModuleLoadData", ctypes.byref(self.module), ctypes.c_char_p(b"kernels"))
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 0)
        self.kernels = {}
        self.graph = self.graph_of(self.kernel(self.STEP_US))
        self.small_graph = self.graph_of(self.kernel(0))
        self.memory = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(16 << 20))
        self.kept = []
        self.host = ctypes.create_string_buffer(16 << 20)

    def enter(self):
        """A context is a thread's."""
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments, accepts=(0,)):
        result = getattr(self.cuda, name)(*arguments)
        if result not in accepts:
            sys.exit(f"{name} failed: {result}")

    def kernel(self, microseconds):
        if microseconds not in self.kernels:
            function = ctypes.c_void_p()
            name = ctypes.c_char_p(f"kernel_{microseconds}us".encode())
            self.call("cuModuleGetFunction", ctypes.byref(function), self.module, name)
            self.kernels[microseconds] = function
        return self.kernels[microseconds]

    def graph_of(self, kernel):
        graph, node, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuGraphCreate", ctypes.byref(graph), 0)
        # CUDA_KERNEL_NODE_PARAMS begins with the function.
        parameters = (ctypes.c_void_p * 16)(kernel)
        no_edges = (None, ctypes.c_size_t(0))
        self.call("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, *no_edges, parameters)
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0))
        return executable

    def launch(self, kernel):
        self.call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, self.stream, None, None)

    def wait(self):
        self.call("cuStreamSynchronize", self.stream)

    def prefill(self, slot, tokens):
        self.enter()
        kernel = self.kernel(self.TOKEN_US * len(tokens) // self.PREFILL_KERNELS)
        for _ in range(self.PREFILL_KERNELS):
            self.launch(kernel)
        self.wait()

    def decode(self):
        self.enter()
        self.call("cuGraphLaunch", self.graph, self.stream)
        self.wait()

    def known(self, kernels=0, graphs=0, copies=0, allocations=0, failures=0):
        self.enter()
        # What the call before allocated.
        for address in self.kept:
            self.call("cuMemFree_v2", address)
        small = self.kernel(0)
        begin = time.monotonic_ns()
        for _ in range(kernels):
            self.launch(small)
        launched = time.monotonic_ns()
        for _ in range(graphs):
            self.call("cuGraphLaunch", self.small_graph, self.stream)
        replayed = time.monotonic_ns()
        for _ in range(copies):
            size = ctypes.c_size_t(len(self.host))
            self.call("cuMemcpyHtoDAsync_v2", self.memory, self.host, size, self.stream)
        self.wait()
        self.kept = [ctypes.c_uint64() for _ in range(allocations)]
        for address in self.kept:
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(64 << 20))
        for _ in range(failures):
            out_of_memory = 2
            address = ctypes.byref(ctypes.c_uint64())
            self.call("cuMemAlloc_v2", address, ctypes.c_size_t(1 << 45), accepts=(out_of_memory,))
        return {
            "kernels": kernels,
            "graphs": graphs,
            "host_to_device_bytes": copies * len(self.host),
            "allocated_bytes": allocations << 26,
            "failures": failures,
            "kernel_ns": (launched - begin) / max(kernels, 1),
            "graph_ns": (replayed - launched) / max(graphs, 1),
        }

    def profiled(self):
        prompts = [list(range(length)) for length in (16, 100, 400)]
        for prompt in prompts:
            self.prefill(0, prompt)
        return {"kernels": self.PREFILL_KERNELS * len(prompts), "prompts": len(prompts)}
