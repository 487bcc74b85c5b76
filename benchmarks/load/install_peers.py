"""Install the peers that benchmarks/load_client.py measures beside ours, each into .peers/<name>.

    python3 benchmarks/load/install_peers.py [NAME ...]

Versions are pinned. vLLM and SGLang come without the packages that only their GPU kernels need:
their benchmark clients do not use them. Takes 16 GB of disk and some ten minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).parents[2] / ".peers"

_GPU_ONLY = re.compile(
    r"torch(audio|vision|codec)?|nvidia-.*|nvtx|cuda-python|flashinfer.*|flash-attn.*|tilelang"
    r"|quack-kernels|humming-kernels|tokenspeed-mla|pynvvideocodec|fastsafetensors|instanttensor"
    r"|apache-tvm-ffi|nvshmem.*|sgl-deep-.*|sgl-flash-mla|sglang-kernel|torch-memory-saver"
    r"|kernels|deepseek-recipe|tml-renderers|decord2|av",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Peer:
    """What is installed: `torch` first, and then the peer without what needs a GPU."""

    requirement: str
    torch: tuple[str, ...] = ()


INSTALLED = {
    "vllm": Peer("vllm==0.33.0", torch=("torch==2.13.0",)),
    "sglang": Peer("sglang==0.5.23", torch=("torch==2.14.1", "torchvision==0.29.1")),
    "guidellm": Peer("guidellm==0.8.1", torch=("torch==2.13.0",)),
    "aiperf": Peer("aiperf==0.13.0"),
}

_REQUIRES = "import importlib.metadata as m, json, sys; print(json.dumps(m.requires(sys.argv[1])))"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(INSTALLED))
    names = parser.parse_args().names or list(INSTALLED)
    if unknown := [name for name in names if name not in INSTALLED]:
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(INSTALLED)}")
    failed = []
    for name in names:
        try:
            install(name, INSTALLED[name])
        except subprocess.CalledProcessError:
            shutil.rmtree(PEERS / name)
            failed.append(name)
    if failed:
        print(f"not installed (see pip's errors above): {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def install(name: str, peer: Peer) -> None:
    """A fresh environment with the peer in it.

    Raises:
        subprocess.CalledProcessError: pip failed; its errors are on the terminal.
    """
    folder = PEERS / name
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin" / "python"
    print(f"{peer.requirement} into {folder}", flush=True)

    def pip(*words: str) -> None:
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words],
            check=True,
        )

    if not peer.torch:
        pip(peer.requirement)
        return
    pip(*peer.torch)
    pip("--no-deps", peer.requirement)
    required = subprocess.run(
        [python, "-c", _REQUIRES, name], check=True, capture_output=True, text=True
    )
    pip(*peer.torch, *(r for r in json.loads(required.stdout) if _is_needed(r)))


def _is_needed(requirement: str) -> bool:
    """Neither one of the GPU's nor one of an extra."""
    distribution = re.match(r"[\w.-]+", requirement)[0].replace("_", "-")
    return "extra ==" not in requirement and not _GPU_ONLY.fullmatch(distribution)


if __name__ == "__main__":
    sys.exit(main())
