"""Whether two arms differ in speculation alone: a sheet of what is known, and rules about it.

A rule turns a difference into a caveat, into levels that must not carry the verdict, or into
`not_comparable`. Everything is read from the tables; docs/why.md lists the rules.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from crossover.applied import not_applied
from crossover.arm_settings import ArmSettings, description_of, sessions_of
from crossover.verdict_metrics import axis_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from crossover.agreement import Agreement
    from crossover.verdict import Verdict

RUNNING_SHORTFALL = 0.2
"""Share of a level by which the arms' running requests may differ: gauges are samples, some of
them seconds old (healthy arms measured: up to 0.18)."""

RUNNING_SLACK = 2.0
"""Requests by which they may always differ: between two requests of a client one is missing."""

CACHED_SHARE = 0.01
"""Difference of the arms' cached prompt tokens, as a share, below which no cache mattered."""

LEAST_AGREEMENT = 0.5
"""Share of identical greedy answers below which the arms may not compute the same."""

NAMED = 8
"""Settings that a caveat names; the sheet has all."""

MACHINE = ("cpu", "architecture", "gpus")
"""What of the hardware makes two arms incomparable where it differs."""

DECISIVE = ("hardware", "engine_version", "max_running_requests", "front_end_processes", "settings")
"""What a reader is told of if it is not known; the sheet shows the rest."""


@dataclass(frozen=True)
class Row:
    """One line of the sheet."""

    what: str
    baseline: Any
    """value, or a list where the arm's sessions differ; None: not known, or a flag not given"""
    variant: Any
    known: bool
    """of both arms"""
    effect: str
    """same, speculation (differs as it should), harmless, caveat, levels_left_out, not_comparable,
    or unknown"""


@dataclass(frozen=True)
class Parity:
    """What differs between the arms of a comparison, and what follows from it."""

    variant: str
    baseline: str
    sheet: tuple[Row, ...] = ()
    caveats: tuple[dict[str, str], ...] = ()
    """{code, text}"""
    left_out: Mapping[int, str] = field(default_factory=dict)
    """level → reason why neither arm's points may carry the verdict there"""
    reasons: tuple[str, ...] = ()
    """why the arms cannot be compared at all; empty if they can"""
    agreement: Agreement | None = None
    differs_in_acceptance_alone: bool = False
    """their settings are known, and differ in nothing but the engine's dial of the acceptance"""

    def held_to(self, points: pd.DataFrame, arms: Sequence[str] | None = None) -> pd.DataFrame:
        """Points of one workload, with those at levels that must be left out made invalid.

        Args:
            points: rows of records.POINTS.
            arms: whose; None: of both.
        """
        if not self.left_out:
            return points
        unlike = points["variant"].isin(arms or [self.variant, self.baseline])
        unlike &= points["concurrency"].isin(self.left_out.keys())
        reasons = [
            [*(() if stated is None else stated), self.left_out[level]] if here else stated
            for here, level, stated in zip(
                unlike, points["concurrency"], points["invalid_reasons"], strict=True
            )
        ]
        return points.assign(valid=points["valid"].mask(unlike, False), invalid_reasons=reasons)

    def applied_to(self, verdict: Verdict) -> Verdict:
        """The verdict with this sheet and its caveats; `not_comparable` where a rule says so."""
        verdict = replace(verdict, parity=self.to_dict(), caveats=verdict.caveats + self.caveats)
        if not self.reasons:
            return verdict
        return replace(
            verdict,
            verdict="not_comparable",
            reasons=self.reasons,
            crossings=(),
            censored=None,
            needed=(),
            indicative=None,
        )

    def to_dict(self) -> dict[str, Any]:
        """The field `parity` of a verdict."""
        return {
            "sheet": [asdict(row) for row in self.sheet],
            "levels_left_out": [
                {"concurrency": level, "reason": why}
                for level, why in sorted(self.left_out.items())
            ],
            "greedy_agreement": None if self.agreement is None else asdict(self.agreement),
        }


def compare_arms(
    points: pd.DataFrame,
    sessions: pd.DataFrame,
    variant: str,
    baseline: str,
    agreement: Agreement | None = None,
) -> Parity:
    """Compare two arms by what was recorded of them.

    Args:
        points: rows of records.POINTS of one workload.
        sessions: rows of records.SESSIONS.
        variant: the arm whose advantage is asked for.
        baseline: the arm it is compared with.
        agreement: of their greedy answers; None: it cannot be told.
    """
    mine = points[points["variant"].isin([variant, baseline])]
    arms = _Arms(mine, sessions_of(mine, sessions, variant), sessions_of(mine, sessions, baseline))
    found = _Findings(variant, baseline)
    for rule in RULES:
        rule(arms, found)
    _agreement(agreement, found)
    _unknown(found)
    differing = [r.what for r in found.sheet if r.effect not in ("same", "harmless", "unknown")]
    return Parity(
        variant,
        baseline,
        tuple(found.sheet),
        tuple(found.caveats),
        found.left_out,
        tuple(found.reasons),
        agreement,
        bool(differing) and all(map(arms.settings[0].dials_acceptance, differing)),
    )


# ------------------------------------------------------------------ what the rules read and write


class _Arms:
    """What was recorded of the two arms, always as (variant, baseline)."""

    def __init__(
        self,
        points: pd.DataFrame,
        variant: Sequence[Mapping[str, Any]],
        baseline: Sequence[Mapping[str, Any]],
    ) -> None:
        self.points = points
        self.sessions = (variant, baseline)
        self.settings = (ArmSettings.of(variant), ArmSettings.of(baseline))
        self.axis = axis_of(points)
        held = points["concurrency"].dropna() if self.axis.closed_loop else []
        self.levels = sorted({int(level) for level in held})
        """of concurrency; none in an open loop, where no number of requests is held"""

    def column(self, name: str) -> tuple[list[Any], list[Any]]:
        """The distinct values of a column of the sessions; empty: not known."""
        return tuple(_distinct(s.get(name) for s in of_arm) for of_arm in self.sessions)

    def described(self, name: str) -> tuple[list[Any], list[Any]]:
        """The distinct values of a key of the servers' own descriptions; empty: not known."""
        return tuple(
            _distinct(description_of(s).get(name) for s in of_arm) for of_arm in self.sessions
        )

    def machines(self) -> tuple[list[Any], list[Any]]:
        """The distinct processors; empty: not known."""
        known = [
            [json.loads(s.get("hardware") or "{}") for s in of_arm] for of_arm in self.sessions
        ]
        return tuple(
            _distinct({k: h[k] for k in MACHINE if k in h} or None for h in of_arm)
            for of_arm in known
        )

    @property
    def unless_above_a_level(self) -> str:
        """The effect of limits that differ where no level lies between them."""
        return "harmless" if self.axis.closed_loop else "caveat"

    def mean(self, column: str, arm: str) -> dict[float, float]:
        """The mean of a column of an arm's valid points by level, where it is known."""
        mine = self.points[(self.points["variant"] == arm) & self.points["valid"].eq(True)]
        return mine.groupby(self.axis.name)[column].mean().dropna().to_dict()


class _Findings:
    """What the rules have found so far."""

    def __init__(self, variant: str, baseline: str) -> None:
        self.variant, self.baseline = variant, baseline
        self.sheet: list[Row] = []
        self.caveats: list[dict[str, str]] = []
        self.left_out: dict[int, str] = {}
        self.reasons: list[str] = []

    def row(self, what: str, values: tuple[list[Any], list[Any]], effect: str) -> None:
        """Add a line; where a side is not known its effect is `unknown`, where equal `same`."""
        ours, theirs = values
        known = bool(ours) and bool(theirs)
        if not known:
            effect = "unknown"
        elif ours == theirs:
            effect = "same"
        self.sheet.append(Row(what, _shown(theirs), _shown(ours), known, effect))

    def caveat(self, code: str, text: str) -> None:
        """Add a caveat."""
        self.caveats.append({"code": code, "text": text})

    def leave_out(self, levels: Iterable[int], reason: str) -> None:
        """Levels where the arms did not run alike; the first reason stays."""
        for level in levels:
            self.left_out.setdefault(level, reason)


def _distinct(values: Iterable[Any]) -> list[Any]:
    known = {json.dumps(v): v for v in values if v is not None}
    return [known[key] for key in sorted(known)]


def _shown(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else (values or None)


def _differ(values: tuple[list[Any], list[Any]]) -> bool:
    """Whether both sides are known and not the same."""
    ours, theirs = values
    return bool(ours) and bool(theirs) and ours != theirs


def _worded(values: tuple[list[Any], list[Any]], found: _Findings) -> str:
    """`plain: 256, spec: 48`."""
    ours, theirs = (", ".join(map(str, side)) or "unknown" for side in values)
    return f"{found.baseline}: {theirs}, {found.variant}: {ours}"


def _at(levels: Iterable[int]) -> str:
    return f"concurrency {', '.join(map(str, levels))}"


# ------------------------------------------------------------------ the rules


def _machine(arms: _Arms, found: _Findings) -> None:
    """Other processors: nothing is left of the comparison. The rest of a machine: shown."""
    values = arms.machines()
    apart = _differ(values) and not _overlap(values)
    found.row("hardware", values, "not_comparable" if apart else "caveat")
    if apart:
        found.reasons.append("hardware_differs")
    found.row("host", arms.column("host"), "caveat")


def _overlap(values: tuple[list[Any], list[Any]]) -> bool:
    ours, theirs = ({json.dumps(v) for v in side} for side in values)
    return bool(ours & theirs)


def _engine_and_model(arms: _Arms, found: _Findings) -> None:
    """Two engines or models that were asked for are the user's question; a changed file is not."""
    for what, code in (("engine", "engines_differ"), ("model_name", "models_differ")):
        values = arms.column(what)
        found.row(what, values, "caveat")
        if _differ(values):
            found.caveat(
                code,
                f"The arms differ in more than speculation, {what.replace('_', ' ')} "
                f"({_worded(values, found)}): the verdict is on both differences together.",
            )
    # `blocks.caveats` says it in words
    found.row("engine_version", arms.column("engine_version"), "caveat")
    files, paths = arms.column("model_fingerprint"), arms.column("model_path")
    replaced = _differ(files) and not _overlap(files) and not _differ(paths)
    found.row("model_fingerprint", files, "not_comparable" if replaced else "caveat")
    if replaced:
        found.reasons.append("model_file_differs")


def _speculation(arms: _Arms, found: _Findings) -> None:
    """What the config says of speculation against what the server says."""
    methods = arms.described("speculation_method")
    declared = arms.column("speculation_method")
    silent = [d and m == ["none"] for m, d in zip(methods, declared, strict=True)]
    found.row("speculation_method", methods, "not_comparable" if any(silent) else "speculation")
    if any(silent):
        found.reasons.append("speculation_not_applied")
    applied, asked = arms.described("drafted_tokens"), arms.column("drafted_tokens")
    for name, said, asked_for in zip(
        (found.variant, found.baseline), methods, declared, strict=True
    ):
        if asked_for and not said and name not in _accepting(arms):
            found.caveat(
                "speculation_unverified",
                f"{name} is to speculate ({_shown(asked_for)}); its server neither says so nor "
                "counts drafts. Look into its log.",
            )
    # a server without speculation has no drafts: not known is as it should be
    found.row(
        "drafted_tokens", tuple(a or d for a, d in zip(applied, asked, strict=True)), "speculation"
    )
    for name, has, wanted in zip((found.variant, found.baseline), applied, asked, strict=True):
        if has and wanted and has != wanted:
            found.caveat(
                "drafted_tokens_not_as_declared",
                f"The server of {name} says that it drafts {_shown(has)} tokens a step, "
                f"the campaign says {_shown(wanted)}.",
            )


def _accepting(arms: _Arms) -> set[str]:
    """The arms whose servers counted verify steps."""
    counted = arms.points["acceptance_length"].notna()
    return set(arms.points.loc[counted, "variant"])


def _cap(arms: _Arms, found: _Findings) -> None:
    """A level above one arm's cap of running requests and not above the other's is left out."""
    caps = arms.described("max_running_requests")
    above = _between(caps, arms.levels) if _differ(caps) else []
    found.row(
        "max_running_requests", caps, "levels_left_out" if above else arms.unless_above_a_level
    )
    if _differ(caps) and not arms.axis.closed_loop:
        found.caveat(
            "cap_differs",
            f"The servers run different numbers of requests at once ({_worded(caps, found)}); at a "
            "request rate it is not known which points that touched. Set the cap of both alike.",
        )
    if above:
        found.leave_out(above, "cap_differs")
        found.caveat(
            "cap_differs",
            f"The servers run different numbers of requests at once ({_worded(caps, found)}): at "
            f"{_at(above)} the one waits where the other computes, so these levels are left out. "
            "Set the cap of both to the highest level, and measure again.",
        )


def _between(limits: tuple[list[float], list[float]], levels: Iterable[int]) -> list[int]:
    """Levels above the lower limit of the two arms and not above the other's."""
    low, high = sorted(min(side) for side in limits)
    return [level for level in levels if low < level <= high]


def _running(arms: _Arms, found: _Findings) -> None:
    """A level at which the engines did not have the same number of requests is left out.

    The clients kept as many in flight; what is missing in an engine was held up before it, or on
    the way back. A front end of one process at its limit looks like this.
    """
    if not arms.axis.closed_loop:
        return
    means = [arms.mean("running_requests_mean", arm) for arm in (found.variant, found.baseline)]
    unlike = {}
    for level in sorted(means[0].keys() & means[1].keys()):
        running = [of_arm[level] for of_arm in means]
        if abs(running[0] - running[1]) > max(RUNNING_SHORTFALL * level, RUNNING_SLACK):
            unlike[int(level)] = running
    at_highest = tuple([of_arm[max(of_arm)]] if of_arm else [] for of_arm in means)
    found.row("running_requests_mean", at_highest, "levels_left_out" if unlike else "harmless")
    if unlike:
        found.leave_out(unlike, "running_differs")
        seen = "; ".join(
            f"{theirs:.0f} of {level} in {found.baseline}, {ours:.0f} in {found.variant}"
            for level, (ours, theirs) in unlike.items()
        )
        found.caveat(
            "running_differs",
            f"The engines did not run the same number of requests ({seen}): what the clients had "
            "in flight was held up outside the one engine, so these levels are left out. Look at "
            "its front end (more API servers or tokenizer workers) and at its cap.",
        )


def _kv_tokens(arms: _Arms, found: _Findings) -> None:
    """A KV cache that holds a level's requests in one arm only."""
    values = arms.described("kv_tokens")
    lengths = arms.points[["prompt_tokens_mean", "output_tokens_mean"]].mean().sum(min_count=2)
    short = []
    if _differ(values) and lengths == lengths:
        holds = tuple([min(side) / lengths] for side in values)
        short = _between(holds, arms.levels)
    found.row("kv_tokens", values, "caveat" if short else arms.unless_above_a_level)
    if short:
        found.caveat(
            "kv_tokens_differ",
            f"The KV caches hold different numbers of tokens ({_worded(values, found)}): at "
            f"{_at(short)} the requests, {lengths:.0f} tokens each when complete, fit into one of "
            "them alone. A draft model takes memory, which is a cost of speculation; a different "
            "memory setting is not.",
        )


def _graphs(arms: _Arms, found: _Findings) -> None:
    """A level whose steps run as captured graphs in one arm only."""
    values = arms.described("graph_max_requests")
    between = _between(values, arms.levels) if _differ(values) else []
    found.row("graph_max_requests", values, "caveat" if between else arms.unless_above_a_level)
    if between:
        found.caveat(
            "graphs_differ",
            f"At {_at(between)} the steps of one arm alone run as captured graphs (up to a batch "
            f"of {_worded(values, found)}): the other pays for starting its kernels.",
        )


def _plain_settings(arms: _Arms, found: _Findings) -> None:
    """Settings whose every difference is a caveat."""
    for what, why in (
        ("memory_fraction", "less memory holds fewer requests"),
        ("chunked_prefill_tokens", "prompts delay the answers in flight differently"),
        ("front_end_processes", "one process takes and sends a limited number of tokens a second"),
    ):
        values = arms.described(what)
        found.row(what, values, "caveat")
        if _differ(values):
            found.caveat(
                f"{what}_differ",
                f"The arms are not alike in {what.replace('_', ' ')} ({_worded(values, found)}): {why}.",
            )


def _prefix_cache(arms: _Arms, found: _Findings) -> None:
    """A prefix cache in one arm, unless no prompt came from it."""
    values = arms.described("prefix_cache")
    shares = [arms.mean("cached_tokens_share", arm) for arm in (found.variant, found.baseline)]
    common = shares[0].keys() & shares[1].keys()
    gap = max((abs(shares[0][c] - shares[1][c]) for c in common), default=None)
    unused = gap is not None and gap < CACHED_SHARE
    found.row("prefix_cache", values, "harmless" if unused else "caveat")
    if not unused and (_differ(values) or gap is not None):
        much = (
            "how much came from it is not known"
            if gap is None
            else f"up to {100 * gap:.0f} % of the prompt tokens more came from the one's"
        )
        found.caveat(
            "prefix_caches_differ",
            f"The arms' prefix caches are not alike ({_worded(values, found)}), and {much}: "
            "switch it off in both.",
        )


def _settings(arms: _Arms, found: _Findings) -> None:
    """Flags, variables and resolved settings: those of speculation may differ."""
    ours, theirs = arms.settings
    recorded = [any(v is not None for v in side.by_source.values()) for side in arms.settings]
    found.row("settings", tuple([True] if r else [] for r in recorded), "same")
    others = []
    for name, (our, their) in ours.differences(theirs).items():
        is_speculation = ours.belongs_to_speculation(name) or theirs.belongs_to_speculation(name)
        effect = "speculation" if is_speculation else "caveat"
        found.sheet.append(Row(name, their, our, known=True, effect=effect))
        if not is_speculation:
            others.append(f"{name} ({_given(name, their)} / {_given(name, our)})")
    if others:
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        found.caveat(
            "settings_differ",
            f"{found.baseline} and {found.variant} differ in settings that are not of speculation: "
            f"{', '.join(others[:NAMED])}{more}. The verdict is on these differences too.",
        )


def _applied(arms: _Arms, found: _Findings) -> None:
    """What was asked for by flags against what the server says that it applied."""
    for name, settings in zip((found.variant, found.baseline), arms.settings, strict=True):
        if apart := not_applied(settings):
            listed = ", ".join(
                f"{flag} (asked for {asked:g}, applied {applied:g})"
                if not isinstance(asked, bool)
                else f"{flag} (applied: {str(applied).lower()})"
                for flag, (asked, applied) in sorted(apart.items())[:NAMED]
            )
            found.caveat(
                "not_applied",
                f"The server of {name} says that it applied other settings than its flags ask "
                f"for: {listed}. See its log.",
            )


def _given(name: str, value: Any) -> str:
    """A setting's value in one arm: a flag is given or not, what a server states is yes or no."""
    stated = name.startswith("server:")
    if value is None:
        return "not stated" if stated else "not given"
    if isinstance(value, bool):
        return "no" if not value else "yes" if stated else "given"
    if isinstance(value, list) and len(value) > NAMED and all(isinstance(v, int) for v in value):
        return f"{len(value)} numbers, {min(value)} to {max(value)}"
    return str(value)


RULES = (
    _machine,
    _engine_and_model,
    _speculation,
    _cap,
    _running,
    _kv_tokens,
    _graphs,
    _plain_settings,
    _prefix_cache,
    _settings,
    _applied,
)


def _agreement(agreement: Agreement | None, found: _Findings) -> None:
    if agreement is None or agreement.share >= LEAST_AGREEMENT:
        return
    found.caveat(
        "answers_differ",
        f"Of {agreement.pairs} greedy answers to the same prompts {100 * agreement.share:.0f} % are "
        "the same in both arms. Speculation should leave them as they are, up to rounding: check "
        "that both serve the same model, and that acceptance is not simulated.",
    )


def _unknown(found: _Findings) -> None:
    """Name what nobody recorded: it is asked of nobody, and nothing is assumed."""
    unknown = defaultdict(list)
    for row in found.sheet:
        if row.what in DECISIVE and not row.known:
            sides = ((found.baseline, row.baseline), (found.variant, row.variant))
            lacking = " and ".join(name for name, value in sides if value is None)
            unknown[lacking].append(row.what.replace("_", " "))
    if unknown:
        of = "; ".join(f"of {arms}: {', '.join(names)}" for arms, names in unknown.items())
        found.caveat(
            "parity_unknown",
            f"Whether the arms differ in more than speculation cannot be told in full. Not "
            f"recorded {of}.",
        )
