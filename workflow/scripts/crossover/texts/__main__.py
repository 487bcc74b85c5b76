"""Write a prompt file to standard output.

python -m crossover.texts code 768 > config/prompts/code.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import sys

from crossover.texts import TEXTS, distinct, jsonl
from crossover.texts.fixed_length import LEAST_TOKENS


def main() -> None:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(
        prog="python -m crossover.texts", description="Write a prompt file to standard output."
    )
    parser.add_argument("text", choices=TEXTS)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, help="for fixed-length: tokens a prompt")
    args = parser.parse_args()
    settings = {} if args.tokens is None else {"tokens": args.tokens}
    if (args.text == "fixed-length") != bool(settings):
        parser.error("--tokens goes with fixed-length, and with nothing else")
    if args.tokens is not None and args.tokens < LEAST_TOKENS:
        parser.error(f"--tokens: at least {LEAST_TOKENS}, below which prompts repeat")
    prompts = distinct(args.text, args.seed, **settings)
    sys.stdout.write(jsonl(itertools.islice(prompts, args.count)))


if __name__ == "__main__":
    main()
