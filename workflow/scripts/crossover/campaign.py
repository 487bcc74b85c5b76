"""A campaign: the validated config as frozen dataclasses, its matrix, and its digests.

A digest names all that a measurement depends on and nothing else, so that a result is up to
date if it exists under its path, whatever has happened to the rest of the config.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import json
import math
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossover import engines
from crossover.axis import CLOSED_LOOP, OPEN_LOOP
from crossover.credentials import is_secret
from crossover.digests import digest, one_spelling
from crossover.engines.flags import refuse_two_spellings
from crossover.errors import CampaignError
from crossover.load.arrivals import LEAST_SCHEDULED_COMPLETED
from crossover.prompt_sets import prompt_set

if TYPE_CHECKING:
    import jsonschema

    from crossover.axis import Axis

PROTOCOL = 1
"""Raised when a change of the measuring code makes earlier points not comparable."""

SCHEMA_PATH = Path(__file__).parents[3] / "config" / "campaign.schema.yaml"

SEQUENTIAL_SHARE = 0.4
"""2 of 5 %: what one look may err if all looks of up to ten rounds are to err 5 %."""

LONGER, LONG_S = 4, 240.0
"""Window of a level that stayed unresolved: times the campaign's own least, up to so many seconds."""

NOT_STATED = "not stated"
"""Name of what an import's files do not name."""


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
    stop: tuple[str, ...] | None = None
    binary: str | None = None
    url: str | None = None
    api_key: str | None = None
    resources: Mapping[str, int | str] = field(default_factory=dict)
    """what a session asks of whoever schedules it; on one machine nothing"""
    epoch: int = 1

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Variant:
        """The inverse of `dataclasses.asdict`, for a variant that travelled as JSON."""
        spec = dict(value)
        spec["model"] = Model(**spec["model"])
        if spec.get("speculation"):
            spec["speculation"] = Speculation(**spec["speculation"])
        for key in ("devices", "command", "stop"):
            if spec.get(key) is not None:
                spec[key] = tuple(spec[key])
        return cls(**spec)


@dataclass(frozen=True)
class Workload:
    """What is asked: prompts, output length, sampling; None: imported, and not known."""

    name: str
    prompts: str | Mapping[str, Any] | None
    """a file, or a supplied text and its settings"""
    prompts_sha256: str | None
    max_tokens: int | None
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
class Arrivals:
    """Requests that are sent on a schedule, whatever has been answered (open loop)."""

    request_rate: tuple[float, ...]
    """levels: requests a second"""
    process: str = "poisson"
    """poisson, or constant"""
    max_in_flight: int = 1000
    """ends a point whose server does not keep up"""


@dataclass(frozen=True)
class Load:
    """How load is put on a server: at levels of concurrency, or where it has `arrivals` of rate."""

    concurrency: tuple[int, ...] = ()
    trials: int = 3
    ramp_s: float = 3.0
    warmup: Warmup = Warmup()
    steady: Steady = Steady()
    request_timeout_s: float = 600.0
    idle_timeout_s: float = 120.0
    arrivals: Arrivals | None = None
    """None: closed loop"""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Load:
        """The load of a campaign file, or of `dataclasses.asdict` that travelled as JSON."""
        load = dict(value)
        if load.get("arrivals") in (None, "closed"):
            load["arrivals"] = None
        else:
            rates = tuple(load["arrivals"]["request_rate"])
            load["arrivals"] = Arrivals(**{**load["arrivals"], "request_rate": rates})
        load["concurrency"] = tuple(load.get("concurrency", ()))
        load["warmup"] = Warmup(**load.get("warmup", {}))
        load["steady"] = Steady(**load.get("steady", {}))
        return cls(**load)

    @property
    def axis(self) -> Axis:
        """What the levels are of."""
        return CLOSED_LOOP if self.arrivals is None else OPEN_LOOP

    @property
    def levels(self) -> tuple[float, ...]:
        """Requests in flight, or requests a second."""
        return self.concurrency if self.arrivals is None else self.arrivals.request_rate

    @property
    def with_long_windows(self) -> Load:
        """For levels that stayed unresolved: a least window of four times, up to 240 s and `max_s`."""
        steady = self.steady
        long_s = min(LONGER * steady.min_s, max(LONG_S, steady.min_s), steady.max_s)
        return replace(self, steady=replace(steady, min_s=long_s))


@dataclass(frozen=True)
class Slo:
    """Service level objectives of one request, seconds; None: no objective. All must be met."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True)
class WhatIf:
    """What the report shall predict."""

    acceptance_length: tuple[float, ...]
    """1 + accepted tokens a verification, as an engine would count them on another text"""


@dataclass(frozen=True)
class Analysis:
    """How points become a verdict (docs/verdict.md)."""

    metric: str = "output_throughput"
    margin: float = 0.02
    confidence: float = 0.95
    seed: int = 1
    block_span_h: float = 12.0
    compare: tuple[tuple[str, str], ...] = ()
    slo: Slo | None = None
    """None: goodput is not judged"""
    load_shares: Mapping[float, float] | None = None
    """level → share of the time at it; None: no gain is computed"""
    what_if: WhatIf | None = None
    sequential: bool = False
    """judged anew after every round of refinement: follows from `refine`, no key of its own"""

    @property
    def alpha(self) -> float:
        """Error of a verdict's bounds: 1 - confidence, or less where there are several looks."""
        return (1 - self.confidence) * (SEQUENTIAL_SHARE if self.sequential else 1)


@dataclass(frozen=True)
class Refine:
    """How far a crossing is narrowed down by rounds of further trials; without rounds not at all."""

    rounds: int = 0
    target_ratio: float = 1.1
    """upper / lower end of an interval of C* that is narrow enough"""
    max_points: int = 60
    """of all rounds together"""


@dataclass(frozen=True)
class Session:
    """One planned life of one server, `rank` in the campaign's order."""

    variant: str
    trial: int
    rank: int


@dataclass(frozen=True)
class Campaign:
    """One campaign file.

    A campaign that imports measures nothing: its variants, workloads, levels, and where the file
    leaves it out the baseline, are in the imported files (`imports.found.completed`).
    """

    name: str
    baseline: str | None
    model: Model
    variants: Mapping[str, Variant]
    workloads: Mapping[str, Workload]
    load: Load
    analysis: Analysis
    refine: Refine = Refine()
    epoch: int = 1
    imports: str | None = None
    """File or folder with result files of other tools."""
    only_measured: bool = False
    """Take the points that are measured by now for all there are."""

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
        return self._point_digests(self.load)

    @functools.cached_property
    def long_point_digests(self) -> dict[str, str]:
        """The same of points with long windows, which refinement may ask for."""
        return self._point_digests(self.load.with_long_windows)

    def _point_digests(self, of_load: Load) -> dict[str, str]:
        load = asdict(of_load)
        del load["concurrency"], load["trials"]
        if of_load.arrivals is None:
            del load["arrivals"]
        else:
            del load["arrivals"]["request_rate"]
        return {
            name: digest({**asdict(w), "prompts": None, "load": load, "seed": self.analysis.seed})
            for name, w in self.workloads.items()
        }

    @functools.cached_property
    def sessions(self) -> list[Session]:
        """The sessions of all trials but those of refinement, in their order."""
        trials = range(1, self.load.trials + 1)
        order = [(variant, trial) for trial in trials for variant in self.order(trial)]
        return [Session(*session, rank) for rank, session in enumerate(order)]

    def order(self, trial: int) -> list[str]:
        """The variants in the order of a trial: drawn for an odd one, then turned for the next."""
        order = sorted(self.variants)
        drawn_for = trial if trial % 2 else trial - 1
        random.Random(f"{self.analysis.seed} order {drawn_for}").shuffle(order)
        return order if trial % 2 else order[::-1]

    @property
    def grid(self) -> list[tuple[str, float]]:
        """(workload, level) of every session of the campaign's own trials."""
        return [(w, c) for w in self.workloads for c in self.load.levels]

    def in_drawn_order(
        self, trial: int, points: Iterable[tuple[str, float]]
    ) -> list[tuple[str, float]]:
        """(workload, level) in the order in which `trial` measures them.

        Drawn anew for each trial, the same for all its variants, and such that a level that is
        added or removed leaves the order of the others alone.
        """

        def drawn(point: tuple[str, float]) -> str:
            return digest([self.analysis.seed, "levels", trial, *point])

        return sorted(points, key=drawn)

    @functools.cached_property
    def refine_digest(self) -> str:
        """Digest of what the rounds of refinement depend on.

        Not of the analysis: what a round measured stays, however it is judged later.
        """
        return digest(
            {
                "servers": self.server_digests,
                "points": self.point_digests,
                "target_ratio": self.refine.target_ratio,
                "max_points": self.refine.max_points,
            }
        )

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

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of what the sessions ask of whoever schedules them, besides devices and time."""
        return tuple(sorted({n for v in self.variants.values() for n in v.resources} - {"runtime"}))


# ------------------------------------------------------------------ values from the shell

_FROM_SHELL = re.compile(r"\$\{(\w+)\}")

_NAMED = re.compile(r"([\w-]+)\s*[=:]\s*")
_NAMED_VALUE = re.compile(r"((Bearer|Basic|Token)\s+)?\S*", re.IGNORECASE)


def from_shell(value: str) -> str:
    """`value` with every `${NAME}` replaced by this process's environment (KeyError if unset)."""
    return _FROM_SHELL.sub(lambda match: os.environ[match[1]], value)


def names_from_shell(variant: Variant) -> set[str]:
    """Every NAME that the variant takes as `${NAME}` from this process's environment."""
    command = engines.get(variant.engine).command(variant, variant.model) or []
    values = [*variant.env.values(), *command, *(variant.stop or ()), variant.api_key or ""]
    return {name for value in values for name in _FROM_SHELL.findall(value)}


def secret_names(variant: Variant) -> set[str]:
    """Those of them that are credentials, by their own name or by what they are given to."""
    command = engines.get(variant.engine).command(variant, variant.model) or []
    given = [
        ("api_key", variant.api_key or ""),
        *variant.env.items(),
        *_flat_args(variant.args),
        *_named_words([*command, *(variant.stop or ())]),
    ]
    taken_by = {
        shell_name
        for name, value in given
        if is_secret(name) and isinstance(value, str)
        for shell_name in _FROM_SHELL.findall(value)
    }
    return taken_by | {name for name in names_from_shell(variant) if is_secret(name)}


def missing_in_shell(variant: Variant) -> list[str]:
    """Names that the variant takes from an environment which does not have them."""
    return sorted(names_from_shell(variant) - set(os.environ))


def _refuse_written_secrets(where: str, words: Iterable[tuple[str, Any]]) -> None:
    """Raise CampaignError for a (name, value) that writes a secret instead of naming it."""
    for name, value in words:
        if (
            isinstance(value, str)
            and is_secret(name)
            and not _FROM_SHELL.search(value)
            and not _is_number(value)
        ):
            variable = re.sub(r"\W", "_", name.strip("-")).upper()
            raise CampaignError(
                f"{where}.{name}: a secret is written into the file; write ${{{variable}}} "
                f"instead and export {variable} in the shell"
            )


def _refuse_other_expansions(where: str, values: Mapping[str, Any]) -> None:
    """Raise CampaignError for `${NAME:-value}` and the like, which no shell would ever expand."""
    for key, value in values.items():
        if "${" in _FROM_SHELL.sub("", str(value)):
            raise CampaignError(
                f"{where}.{key}: {value!r} is not filled in: ${{NAME}} alone is; "
                "set NAME in the shell, or write the value"
            )


def _named_words(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, value) of `--flag value`, and of `NAME=value` and `Name: value` anywhere in a word."""
    for word, following in itertools.pairwise([*words, ""]):
        for name in _NAMED.finditer(word):
            yield name[1], _NAMED_VALUE.match(word, name.end())[0]
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            yield (flag, value) if equals else (flag, following)


def _flat_args(args: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of every value, those in lists and mappings under their nearest name."""
    for name, value in args.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                yield from _flat_args(one)
            elif isinstance(one, list):
                yield from _flat_args({name: one})
            else:
                yield name, one


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
    import yaml  # which jobs that read no campaign do not wait for

    return yaml.safe_load(SCHEMA_PATH.read_text())


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
    config = json.loads(json.dumps(config, default=str))
    problems = [*_not_finite(config), *_problems(one_spelling(config))]
    if problems:
        raise CampaignError("\n".join(f"{source}: {p}" for p in problems))
    try:
        return _build(_numbers_in_one_spelling(config), Path(root))
    except CampaignError as error:
        raise CampaignError(f"{source}: {error}") from None


def _numbers_in_one_spelling(config: dict[str, Any]) -> dict[str, Any]:
    """The config with whole numbers as int, but for `args`: to a server 1.0 may not be 1."""
    spelled = one_spelling(config)
    variants = config.get("variants", {})
    for given, found in (
        (config.get("defaults"), spelled.get("defaults")),
        *((spec, spelled["variants"][name]) for name, spec in variants.items()),
    ):
        if given and "args" in given:
            found["args"] = given["args"]
    return spelled


def _build(config: dict[str, Any], root: Path) -> Campaign:
    if "imports" in config:
        return _import(config)
    model = Model(**config["model"])
    defaults = config.get("defaults") or {}
    variants = {
        name: _variant(name, _merged(defaults, spec or {}), model)
        for name, spec in config["variants"].items()
    }
    _check_resources(variants)
    baseline = config["baseline"]
    if baseline not in variants:
        raise CampaignError(
            f"baseline: {baseline!r} is no variant{_nearest(baseline, variants)}; "
            f"allowed: {', '.join(variants)}"
        )
    load = Load.from_dict(config["load"])
    if (steady := load.steady).min_s > steady.max_s:
        raise CampaignError(
            f"load.steady: min_s {steady.min_s:g} is above max_s {steady.max_s:g}; "
            "no window can be both"
        )
    refine = Refine(**config.get("refine", {}))
    if refine.rounds and load.arrivals:
        raise CampaignError(
            "refine.rounds: rounds add concurrencies, and this campaign's levels are request "
            "rates (load.arrivals); leave refine out, and give more rates or trials"
        )
    for rate in load.arrivals.request_rate if load.arrivals else ():
        if rate * steady.max_s < LEAST_SCHEDULED_COMPLETED:
            raise CampaignError(
                f"load.arrivals.request_rate: at {rate:g} requests/s a window of at most "
                f"{steady.max_s:g} s (load.steady.max_s) sees {rate * steady.max_s:.3g} of the "
                f"{LEAST_SCHEDULED_COMPLETED} answers that it takes; raise max_s to "
                f"{2 * LEAST_SCHEDULED_COMPLETED / rate:.0f}, or leave the rate out"
            )
    analysis = replace(_analysis(config, load.axis), sequential=refine.rounds > 0)
    for pair in analysis.compare:
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
        load=load,
        analysis=analysis,
        refine=refine,
        epoch=config.get("epoch", 1),
        only_measured="only" in config,
    )


def _import(config: dict[str, Any]) -> Campaign:
    return Campaign(
        name=config["campaign"],
        baseline=config.get("baseline"),
        model=Model(NOT_STATED),
        variants={},
        workloads={},
        load=Load(trials=0),
        analysis=_analysis(config),
        imports=config["imports"],
    )


def _analysis(config: dict[str, Any], axis: Axis = CLOSED_LOOP) -> Analysis:
    settings = dict(config.get("analysis", {}))
    if not axis.closed_loop:
        # a server that keeps up gives the throughput that is asked of it, with either arm
        settings.setdefault("metric", "decode_rate")
        for key in ("load_shares", "what_if"):
            if key in settings:
                raise CampaignError(
                    f"analysis.{key}: it follows from throughputs at equal concurrency, which "
                    "load.arrivals with request rates does not give; leave one of the two out"
                )
    settings["compare"] = tuple(tuple(pair) for pair in settings.get("compare", []))
    if "slo" in settings:
        settings["slo"] = Slo(**settings["slo"])
    if settings.get("metric") == "goodput" and "slo" not in settings:
        raise CampaignError(
            "analysis.metric: goodput counts the requests that meet objectives; "
            "give them as analysis.slo, e.g. {ttft_s: 1, tpot_s: 0.05}"
        )
    if "load_shares" in settings:
        settings["load_shares"] = {int(c): s for c, s in settings["load_shares"].items()}
    if "what_if" in settings:
        settings["what_if"] = WhatIf(tuple(settings["what_if"]["acceptance_length"]))
    return Analysis(**settings)


def _merged(defaults: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**defaults, **spec}
    for key in ("args", "env", "resources"):
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
    _refuse_written_secrets(f"variants.{name}.env", variant.env.items())
    _refuse_written_secrets(f"variants.{name}.args", _flat_args(variant.args))
    _refuse_other_expansions(f"variants.{name}.env", variant.env)
    for key in ("command", "stop"):
        words = getattr(variant, key) or ()
        _refuse_written_secrets(f"variants.{name}.{key}", _named_words(words))
    for key in ("command", "stop", "binary", "url"):
        if getattr(variant, key) is not None and key not in engines.get(engine).takes:
            raise CampaignError(f"variants.{name}.{key}: engine {engine} does not take it")
    try:
        refuse_two_spellings(variant.args)
        engines.get(engine).command(variant, model)
        drafted = engines.get(engine).drafted_tokens(variant)
    except CampaignError as error:
        raise CampaignError(f"variants.{name}.{error}") from None
    declared = variant.speculation and variant.speculation.drafted_tokens
    if declared is not None and drafted not in (None, declared):
        raise CampaignError(
            f"variants.{name}.speculation.drafted_tokens: {declared}, and by its flags it drafts "
            f"{drafted} a step, without the bonus token; make them agree"
        )
    return variant


def _check_resources(variants: Mapping[str, Variant]) -> None:
    """A resource is either every variant's or none's: a default of a profile fills no gaps."""
    names = {name for variant in variants.values() for name in variant.resources}
    for variant in variants.values():
        if lacking := sorted(names - set(variant.resources)):
            raise CampaignError(
                f"variants.{variant.name}.resources: {', '.join(lacking)} is given by other "
                "variants only; give it here too, or once in defaults.resources"
            )


def _workload(name: str, spec: dict[str, Any], root: Path) -> Workload:
    try:
        prompts = prompt_set(spec["prompts"], root)
    except CampaignError as error:
        raise CampaignError(f"workloads.{name}.prompts: {error}") from None
    return Workload(name=name, prompts_sha256=prompts.sha256, **spec)


def _not_finite(value: Any, where: str = "") -> Iterator[str]:
    """YAML knows .nan and .inf, and a schema's limits let them pass."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        name = f"{where}.{key}" if where else str(key)
        if isinstance(item, (dict, list)):
            yield from _not_finite(item, name)
        elif isinstance(item, float) and not math.isfinite(item):
            yield f"{name}: {item} is no number that can be worked with; give a finite one"


def _problems(config: Any) -> Iterator[str]:
    import jsonschema  # a twentieth of a second, which jobs that read no campaign do not wait for

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
    if error.absolute_path and is_secret(str(error.absolute_path[-1])):
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
