"""Write a GGUF file as a folder: `make_model_folder.py SOURCE.gguf TARGET`."""

import sys
from pathlib import Path

from crossover.errors import plain_errors
from crossover.hf_model import write_folder


def main(source: Path, target: Path) -> None:
    """Write the folder and say so."""
    tensors = write_folder(source, target)
    print(f"{source.name} → {target}: {tensors} tensors")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: make_model_folder.py SOURCE.gguf TARGET")
    with plain_errors():
        main(Path(sys.argv[1]), Path(sys.argv[2]))
