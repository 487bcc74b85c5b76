"""A stand-in for a server over several GPUs, its processes below each other as vLLM's are.

    tensor_parallel_server.py api-server SIZE SERVER…    SERVER: a server's Python file and its flags

api-server    answers requests, as SERVER does; below it
engine-core   one process, and below that
worker        SIZE of them: the n-th holds memory of the n-th GPU in CUDA_VISIBLE_DEVICES, and
              does not start where that GPU has none left

TERM ends all of them in their order. A process that loses one below it ends with an error and
leaves the others behind; none notices that the one above it is gone (vllm#55510).
"""

import os
import runpy
import signal
import subprocess
import sys
import threading

import device_memory

WORKER_BYTES = 100 * 2**30
"""More than half of a GPU: two do not fit."""

LIFE_S = 300
"""Whatever a test forgets ends by itself."""


def begin(role, *args):
    """Start a process below this one; whether it came up is what it prints."""
    return subprocess.Popen([sys.executable, __file__, role, *args], stdout=subprocess.PIPE)


def is_up(process):
    return process.stdout.readline() == b"up\n"


def api_server(size, server, *args):
    core = begin("engine-core", size)
    if not is_up(core):
        sys.exit("api-server: the engine core did not start")
    stopping = threading.Event()

    def watch():
        core.wait()
        if not stopping.is_set():
            print("api-server: the engine core died", file=sys.stderr, flush=True)
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    sys.argv = [server, *args]
    try:
        runpy.run_path(server, run_name="__main__")
    finally:
        stopping.set()
        core.terminate()
        core.wait()


def engine_core(size):
    workers = [begin("worker", str(rank)) for rank in range(int(size))]

    def end(*_):
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    up = [is_up(worker) for worker in workers]
    if not all(up):
        for worker in workers:
            worker.kill()
        sys.exit("engine-core: a worker did not start")
    print("up", flush=True)
    os.wait()
    sys.exit("engine-core: a worker died")


def worker(rank):
    gpu = int(os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(rank)])
    if device_memory.held(gpu):
        sys.exit(f"worker {rank}: out of memory on GPU {gpu}")
    device_memory.hold(gpu, WORKER_BYTES)
    print("up", flush=True)
    signal.pause()


signal.alarm(LIFE_S)
{"api-server": api_server, "engine-core": engine_core, "worker": worker}[sys.argv[1]](*sys.argv[2:])
