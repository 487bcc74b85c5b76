"""A campaign: the validated config as frozen dataclasses, its matrix, and its digests.

A digest names all that a measurement depends on and nothing else, so that a result is up to
date if it exists under its path, whatever has happened to the rest of the config.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import itertools
import json
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from crossover import engines
from crossover.errors import CampaignError

PROTOCOL = 1
"""Raised when a change of the measuring code makes earlier points not comparable."""

SCHEMA_PATH = Path(__file__).parents[3] / "config" / "campaign.schema.yaml"


def canonical(value: Any) -> str:
    """JSON with sorted keys and one spelling a number: equal configs give equal strings."""
    return json.dumps(_one_spelling(value), sort_keys=True, separators=(",", ":"))


def _one_spelling(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _one_spelling(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_one_spelling(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def digest(value: Any) -> str:
    """Eight hex digits that stand for `value` in a path."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Model:
    """What is served: a file or folder, or a name that the engine itself resolves."""

    name: str
    path: str | None = None


@dataclass(frozen=True)
class Speculation:
    """What the variant speculates with; for labels and parity, never for the command."""

    method: str
    drafted_tokens: int | None = None


@dataclass(frozen=True)
class Variant:
    """One server configuration."""

    name: str
    engine: str
    model: Model
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu0",)
    startup_timeout_s: float = 300.0
    stop_grace_s: float = 30.0
    speculation: Speculation | None = None
    command: tuple[str, ...] | None = None
    binary: str | None = None
    url: str | None = None
    api_key: str | None = None
    epoch: int = 1

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Variant:
        """The inverse of `dataclasses.asdict`, for a variant that travelled as JSON."""
        spec = dict(value)
        spec["model"] = Model(**spec["model"])
        if spec.get("speculation"):
            spec["speculation"] = Speculation(**spec["speculation"])
        for key in ("devices", "command"):
            if spec.get(key) is not None:
                spec[key] = tuple(spec[key])
        return cls(**spec)


@dataclass(frozen=True)
class Workload:
    """What is asked: prompts, output length, sampling."""

    name: str
    prompts: str
    prompts_sha256: str
    max_tokens: int
    temperature: float = 0.0
    ignore_eos: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Warmup:
    """Load before the window, at the level's own concurrency."""

    completions_per_client: float = 2.0
    max_s: float = 300.0


@dataclass(frozen=True)
class Steady:
    """The measured window: at least `min_s` and `completions_per_client`, at most `max_s`."""

    min_s: float = 60.0
    completions_per_client: float = 4.0
    max_s: float = 300.0


@dataclass(frozen=True)
class Load:
    """How load is put on a server (closed loop)."""

    concurrency: tuple[int, ...]
    trials: int = 3
    ramp_s: float = 3.0
    warmup: Warmup = Warmup()
    steady: Steady = Steady()
    request_timeout_s: float = 600.0
    idle_timeout_s: float = 120.0


@dataclass(frozen=True)
class Analysis:
    """How points become a verdict (METHOD: margin and confidence of the bounds)."""

    metric: str = "output_throughput"
    margin: float = 0.02
    confidence: float = 0.95
    seed: int = 1
    block_span_h: float = 12.0
    compare: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Session:
    """One planned life of one server, `rank` in the campaign's order."""

    variant: str
    trial: int
    rank: int


@dataclass(frozen=True)
class Campaign:
    """One campaign file."""

    name: str
    baseline: str
    model: Model
    variants: Mapping[str, Variant]
    workloads: Mapping[str, Workload]
    load: Load
    analysis: Analysis
    epoch: int = 1

    @functools.cached_property
    def server_digests(self) -> dict[str, str]:
        """For each variant: the digest of all that its server depends on."""
        return {name: self._server_digest(v) for name, v in self.variants.items()}

    def _server_digest(self, variant: Variant) -> str:
        engine = engines.get(variant.engine)
        return digest(
            {
                "protocol": PROTOCOL,
                "engine": variant.engine,
                "command": engine.command(variant, variant.model),
                "url": variant.url,
                "model": asdict(variant.model),
                "env": {**engine.environment(variant), **variant.env},
                "devices": variant.devices,
                "epoch": [self.epoch, variant.epoch],
            }
        )

    @functools.cached_property
    def point_digests(self) -> dict[str, str]:
        """For each workload: the digest of what a point depends on besides its server."""
        load = asdict(self.load)
        del load["concurrency"], load["trials"]
        return {
            name: digest({**asdict(w), "prompts": None, "load": load, "seed": self.analysis.seed})
            for name, w in self.workloads.items()
        }

    @functools.cached_property
    def sessions(self) -> list[Session]:
        """All sessions, trial by trial: odd trials in a drawn order, even ones in its reverse."""
        order: list[str] = []
        result = []
        for trial in range(1, self.load.trials + 1):
            if trial % 2:
                order = sorted(self.variants)
                random.Random(f"{self.analysis.seed} order {trial}").shuffle(order)
            else:
                order = order[::-1]
            result += [Session(v, trial, len(result) + i) for i, v in enumerate(order)]
        return result

    def points(self, trial: int) -> list[tuple[str, int]]:
        """(workload, concurrency) of every session of `trial`, in the order of measuring.

        Drawn anew for each trial, the same for all its variants, and such that a level that is
        added or removed leaves the order of the others alone.
        """

        def drawn(point: tuple[str, int]) -> str:
            return digest([self.analysis.seed, "levels", trial, *point])

        return sorted(((w, c) for w in self.workloads for c in self.load.concurrency), key=drawn)

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """(variant, reference) pairs to judge; by default each variant against the baseline."""
        return self.analysis.compare or tuple(
            (name, self.baseline) for name in self.variants if name != self.baseline
        )

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices that any variant uses."""
        return tuple(sorted({d for v in self.variants.values() for d in v.devices}))


# ------------------------------------------------------------------ values from the shell

_FROM_SHELL = re.compile(r"\$\{(\w+)\}")
_SECRET = re.compile(
    r"(^|[-_])(\w*key|token|secret|password|passwd|auth|credentials?)$", re.IGNORECASE
)


def from_shell(value: str) -> str:
    """`value` with every `${NAME}` replaced by this process's environment (KeyError if unset)."""
    return _FROM_SHELL.sub(lambda match: os.environ[match[1]], value)


def missing_in_shell(variant: Variant) -> list[str]:
    """Names that the variant takes from an environment which does not have them."""
    command = engines.get(variant.engine).command(variant, variant.model) or []
    values = [*variant.env.values(), *command, variant.api_key or ""]
    names = {name for value in values for name in _FROM_SHELL.findall(value)}
    return sorted(names - set(os.environ))


def _refuse_written_secrets(where: str, words: Iterable[tuple[str, Any]]) -> None:
    """Raise CampaignError for a (name, value) that writes a secret instead of naming it."""
    for name, value in words:
        if (
            isinstance(value, str)
            and _SECRET.search(name)
            and not _FROM_SHELL.search(value)
            and not _is_number(value)
        ):
            variable = re.sub(r"\W", "_", name.strip("-")).upper()
            raise CampaignError(
                f"{where}.{name}: a secret is written into the file; write ${{{variable}}} "
                f"instead and export {variable} in the shell"
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------ reading and checking


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of a campaign file."""
    return yaml.safe_load(SCHEMA_PATH.read_text())


def read_campaign(file: str) -> Campaign:
    """The campaign in a YAML file.

    Raises:
        CampaignError: the file is not there, is not YAML, or see `load_campaign`.
    """
    try:
        config = yaml.safe_load(Path(file).read_text())
    except OSError as error:
        raise CampaignError(f"cannot read {file}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise CampaignError(f"{file} is not YAML: {error}") from None
    return load_campaign(config, file)


def load_campaign(config: Mapping[str, Any], source: str, root: Path | str = ".") -> Campaign:
    """Check a parsed campaign file and turn it into a `Campaign`.

    Args:
        config: what the YAML file holds.
        source: the file's name, for messages.
        root: the folder that relative paths start from.

    Raises:
        CampaignError: names the file, the key, the value and what is allowed.
    """
    # plain types, whatever the loader made: YAML turns 2026-12-02 into a date
    config = _one_spelling(json.loads(json.dumps(config, default=str)))
    problems = list(_problems(config))
    if problems:
        raise CampaignError("\n".join(f"{source}: {p}" for p in problems))
    try:
        return _build(config, Path(root))
    except CampaignError as error:
        raise CampaignError(f"{source}: {error}") from None


def _build(config: dict[str, Any], root: Path) -> Campaign:
    model = Model(**config["model"])
    defaults = config.get("defaults") or {}
    variants = {
        name: _variant(name, _merged(defaults, spec or {}), model)
        for name, spec in config["variants"].items()
    }
    baseline = config["baseline"]
    if baseline not in variants:
        raise CampaignError(
            f"baseline: {baseline!r} is no variant{_nearest(baseline, variants)}; "
            f"allowed: {', '.join(variants)}"
        )
    load = dict(config["load"])
    load["concurrency"] = tuple(load["concurrency"])
    load["warmup"] = Warmup(**load.get("warmup", {}))
    load["steady"] = Steady(**load.get("steady", {}))
    analysis = dict(config.get("analysis", {}))
    analysis["compare"] = tuple(tuple(pair) for pair in analysis.get("compare", []))
    for pair in analysis["compare"]:
        for name in pair:
            if name not in variants:
                raise CampaignError(
                    f"analysis.compare: {name!r} is no variant{_nearest(name, variants)}; "
                    f"allowed: {', '.join(variants)}"
                )
    return Campaign(
        name=config["campaign"],
        baseline=baseline,
        model=model,
        variants=variants,
        workloads={n: _workload(n, w, root) for n, w in config["workloads"].items()},
        load=Load(**load),
        analysis=Analysis(**analysis),
        epoch=config.get("epoch", 1),
    )


def _merged(defaults: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**defaults, **spec}
    for key in ("args", "env"):
        merged[key] = {**defaults.get(key, {}), **spec.get(key, {})}
    return merged


def _variant(name: str, spec: dict[str, Any], model: Model) -> Variant:
    engine = spec.get("engine")
    if engine not in engines.ENGINES:
        raise CampaignError(
            f"variants.{name}.engine: {engine!r} is no engine"
            f"{_nearest(str(engine), engines.ENGINES)}; allowed: {', '.join(engines.ENGINES)}"
        )
    variant = Variant.from_dict({**spec, "name": name, "model": asdict(model)})
    words = variant.command or ()
    flags = [(flag, value) for flag, value in itertools.pairwise(words) if flag.startswith("-")]
    flags += [tuple(word.split("=", 1)) for word in words if word.startswith("-") and "=" in word]
    _refuse_written_secrets(f"variants.{name}.env", variant.env.items())
    _refuse_written_secrets(f"variants.{name}.args", variant.args.items())
    _refuse_written_secrets(f"variants.{name}.command", flags)
    for key in ("command", "binary", "url"):
        if getattr(variant, key) is not None and key not in engines.get(engine).takes:
            raise CampaignError(f"variants.{name}.{key}: engine {engine} does not take it")
    try:
        engines.get(engine).command(variant, model)
    except CampaignError as error:
        raise CampaignError(f"variants.{name}.{error}") from None
    return variant


def _workload(name: str, spec: dict[str, Any], root: Path) -> Workload:
    path = root / spec["prompts"]
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CampaignError(
            f"workloads.{name}.prompts: cannot read {spec['prompts']!r} ({error.strerror}); "
            "give a JSONL file with one object with a `prompt` a line"
        ) from None
    read_prompts(content, f"workloads.{name}.prompts: {spec['prompts']}")
    return Workload(name=name, prompts_sha256=hashlib.sha256(content).hexdigest(), **spec)


def read_prompts(content: bytes, source: str) -> list[str]:
    """The prompts of a JSONL file: one object with a non-empty string `prompt` a line.

    Raises:
        CampaignError: names the line that is something else, or says that there is none.
    """
    prompts = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            prompt = json.loads(line)["prompt"]
        except (ValueError, TypeError, KeyError):
            prompt = None
        if not isinstance(prompt, str) or not prompt.strip():
            raise CampaignError(
                f"{source}: line {number} is {line[:60].decode(errors='replace')!r}; "
                'each line must be a JSON object such as {"prompt": "…"}'
            )
        prompts.append(prompt)
    if not prompts:
        raise CampaignError(f"{source}: holds no prompts")
    return prompts


def _problems(config: Any) -> Iterator[str]:
    validator = jsonschema.Draft202012Validator(schema())
    for error in sorted(validator.iter_errors(config), key=lambda e: [str(p) for p in e.path]):
        yield _problem(error)


def _problem(error: jsonschema.ValidationError) -> str:
    where = ".".join(str(p) for p in error.absolute_path) or "(top level)"
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = sorted(set(error.instance) - set(known))
        return "; ".join(
            f"{where}: unknown key {key!r}{_nearest(key, known)}; allowed: {', '.join(known)}"
            for key in unknown
        )
    if error.validator == "required":
        missing = [k for k in error.validator_value if k not in error.instance]
        return f"{where}: missing key {', '.join(map(repr, missing))}"
    if error.absolute_path and _SECRET.search(str(error.absolute_path[-1])):
        return f"{where}: the value, not shown here, is not allowed; {error.schema.get('description', 'give a string')}"
    if error.validator in ("pattern", "propertyNames"):
        allowed = error.schema.get("description", error.schema.get("pattern", ""))
        shown = re.sub(r"//[^/]*@", "//(hidden)@", repr(error.instance))
        return f"{where}: {shown} is not allowed; {allowed}"
    described = error.schema.get("description")
    return f"{where}: {error.message}" + (f" ({described})" if described else "")


def _nearest(key: str, known: Any) -> str:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
