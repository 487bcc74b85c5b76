"""Write the default model: `make_model.py models/smollm2-135m-instruct-bf16.gguf`.

The weight type is the one in the file's name, bf16 or q8_0; see crossover/gguf_model.py.
"""

import sys
from pathlib import Path

from crossover.errors import plain_errors
from crossover.gguf_model import convert, packaged_model


def main(target: Path) -> None:
    """Convert the packaged model to `target` and say so."""
    source = packaged_model()
    print(f"{source.name} → {target} …", flush=True)
    tensors = convert(source, target)
    print(f"{target}: {tensors} tensors, {target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_model.py OUTPUT.gguf")
    with plain_errors():
        main(Path(sys.argv[1]))
