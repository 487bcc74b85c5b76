"""What a dense bf16 Llama with head dimension 128 needs on one Hopper GPU, of vLLM and of SGLang."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import fatbin

if TYPE_CHECKING:
    from pathlib import Path

HOPPER = 90

ATTENTION = rb"ELi128ENS_10bfloat16_tEfNS_4arch4Sm90ELb[01]ELb[01]ELb0E"
"""In a FlashAttention-3 kernel's name: head dimension 128, bf16, without a soft cap."""

OTHER_VALUE_WIDTH = b"ILi192EEEEEELi128E"


def product(site: Path) -> None:
    """The workflow's own packages: no solvers, which only other schedulers of Snakemake use."""
    _remove(site, "bin", "pulp/solverdir", "**/tests")


def vllm(site: Path) -> None:
    """Without FlashAttention 2 (Ampere), Blackwell, MLA, tuned MoE tables, the Rust front end."""
    _remove(
        site,
        *("bin", "share", "**/*.pyi", "pycountry/locales", "mistral_common/data"),
        *("cryptography", "cryptography-*", "xgrammar/lib"),
        *("vllm/vllm-rs", "vllm/_qutlass_C.abi3.so", "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"),
        *("vllm/third_party/deep_gemm", "vllm/third_party/fmha_sm100"),
        *("vllm/_flashmla_C.abi3.so", "vllm/_flashmla_extension_C.abi3.so"),
        *(
            "vllm/distributed/kv_transfer/*.jpg",
            "vllm/**/model_executor/layers/**/*configs*/**/*.json",
        ),
    )
    for library in ("_C_stable_libtorch", "_moe_C_stable_libtorch"):
        fatbin.blank(site / f"vllm/{library}.abi3.so", _is_hopper)
    _strip(site, "xgrammar/*.so")


def sglang(site: Path) -> None:
    """Without Blackwell, MLA, the Rust servers, diffusion; of FlashAttention 3 a few kernels."""
    _remove(
        site,
        *(
            "bin",
            "tools",
            "licensing",
            "**/*.pyi",
            "xgrammar/lib",
            "torch_memory_saver_hook_mode_*",
        ),
        *("sgl_kernel/sm100", "sgl_kernel/flashmla_ops.abi3.so", "sgl_kernel/infllm_ops*.so"),
        *("sglang/srt/grpc/_core*.so", "sglang/srt/server/_core*.so"),
        *("sglang/srt/multimodal/_core*.so", "sglang/test", "sglang/multimodal_gen", "sglang/eval"),
    )
    for table in site.glob("sglang/**/*.json"):
        if "config" in str(table.relative_to(site)) and table.stat().st_size > 1024:
            table.unlink()
    for library in ("sm90/common_ops", "spatial_ops"):
        fatbin.blank(site / f"sgl_kernel/{library}.abi3.so", _is_hopper)
    fatbin.blank(site / "sgl_kernel/flash_ops.abi3.so", _is_attention)
    for package in ("xgrammar", "tokenizers", "pydantic_core", "orjson"):
        _strip(site, f"{package}/**/*.so*")


def _is_hopper(entry: fatbin.Entry, code: bytes) -> bool:
    return entry.kind == fatbin.CUBIN and entry.architecture == HOPPER


def _is_attention(entry: fatbin.Entry, code: bytes) -> bool:
    """Compressed cubins are those of other head dimensions; helpers have no kernel name to match."""
    if not _is_hopper(entry, code) or not code.startswith(b"\x7fELF"):
        return False
    kernels = set(re.findall(rb"\.text\.(_Z[A-Za-z0-9_]+)", code))
    if not any(b"FlashAttnFwdSm" in kernel for kernel in kernels):
        return True
    return any(re.search(ATTENTION, k) and OTHER_VALUE_WIDTH not in k for k in kernels)


def _remove(site: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in list(site.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _strip(site: Path, pattern: str) -> None:
    """Debug symbols away."""
    for library in site.glob(pattern):
        subprocess.run(["strip", "--strip-unneeded", library], check=True)
