"""What each figure shows: its rows, its caption, and its finding as alt text; no drawing."""

@dataclass(frozen=True)
class Figure:
    """One chart: what is drawn (`kind` picks the drawing) and the finding as its alt text.

    Every row has `variant` (whose look it has), `series` (its name) and `concurrency`.
    """

    kind: str
    slug: str
    title: str
    note: str
    finding: str
    series: list[tuple[str, str]]
    levels: list[int]
    means: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)
    crossings: list[dict[str, Any]] = field(default_factory=list)
    margin: float | None = None
    unit: str = ""


def _series(levels: Iterable[Level]) -> list[tuple[str, str]]:
    return [(v, v) for v in dict.fromkeys(level.variant for level in levels)]


def _figure(kind: str, workload: str, levels: Sequence[Level], **rest: Any) -> Figure:
    rest.setdefault("slug", f"{kind}-{workload}")
    rest.setdefault("series", _series(levels))
    return Figure(kind=kind, levels=sorted({n.concurrency for n in levels}), **rest)


def _speedup(
    workload: str,
    reference: str,
    judged: Sequence[Row],
    levels: Sequence[Level],
    verdicts: Row,
    campaign: Campaign,
) -> Figure:
    settings = _settings(verdicts, campaign)
    margin, confidence = settings["margin"], settings["confidence"]
    means = [
        {
            "variant": v["variant"],
            "series": v["variant"],
            "concurrency": n["concurrency"],
            "ratio": n["ratio"],
            "lo": n.get("lo"),
            "hi": n.get("hi"),
            "said": ratio(n["ratio"], n.get("lo"), n.get("hi")),
            "label": LABELS.get(n["label"], n["label"]),
        }
        for v in judged
        for n in v.get("levels") or []
        if n.get("ratio") is not None
    ]
    crossings = [
        {
            "variant": v["variant"],
            "c_star": crossing.get("c_star"),
            "lo": (crossing.get("ci") or [None, None])[0],
            "hi": (crossing.get("ci") or [None, None])[1],
            "said": _crossing_words(crossing, confidence),
        }
        for v in judged
        for crossing in v.get("crossings") or []
    ]
    sentences = [v.get("sentence") or _name(v, campaign) for v in judged]
    extremes = [
        f"{v['variant']}: largest ratio {_ratio_words(max(known, key=lambda n: n['ratio']))}, "
        f"smallest {_ratio_words(min(known, key=lambda n: n['ratio']))}."
        for v in judged
        if (known := [n for n in v.get("levels") or [] if n.get("ratio") is not None])
    ]
    variants = list(dict.fromkeys(v["variant"] for v in judged))
    trials = _trial_ratios(variants, reference, levels)
    return _figure(
        "speedup",
        workload,
        levels,
        slug=f"speedup-{workload}" + ("" if reference == campaign.baseline else f"-{reference}"),
        title=f"Speed-up over {reference}",
        note=" ".join(_speedup_note(reference, margin, confidence, means, trials, crossings)),
        finding=" ".join([*sentences, *extremes]) if means else "No level can be compared.",
        series=[(name, name) for name in variants],
        means=means,
        trials=trials,
        crossings=crossings,
        margin=margin,
    )


def _speedup_note(
    reference: str,
    margin: float,
    confidence: float,
    means: Sequence[Row],
    trials: Sequence[Row],
    crossings: Sequence[Row],
) -> Iterable[str]:
    yield (
        f"Output throughput relative to {reference} at the same concurrency: above 1, the variant "
        "is faster. Large symbols are the estimates, small ones beside them single trials."
    )
    if not all(t["valid"] for t in trials):
        yield "Hollow symbols are invalid and left out."
    if any(m["lo"] is not None for m in means):
        yield f"The tinted band holds for all levels at once with {confidence * 100:g} % confidence."
    else:
        yield "There is no band: the data give no interval."
    yield f"The grey strip is the margin of ±{margin * 100:g} %, within which a difference counts as none."
    if crossings:
        yield "A dotted rule is an estimated crossing, the shaded column its interval."
    if len({m["concurrency"] for m in means}) > 1:
        yield "Lines between measured levels only guide the eye."


def _trial_ratios(
    variants: Iterable[str], reference: str, levels: Sequence[Level]
) -> list[dict[str, Any]]:
    """Throughput ratio of every trial in which both sides gave tokens, valid or not."""
    column = "output_throughput_tokens_per_s"
    points = {
        (p["variant"], p["concurrency"], p["trial"]): p
        for level in levels
        for p in (*level.valid, *level.invalid)
        if p[column]
    }
    return [
        {
            "variant": variant,
            "series": variant,
            "concurrency": concurrency,
            "trial": trial,
            "ratio": p[column] / other[column],
            "said": ratio(p[column] / other[column]),
            "valid": bool(p["valid"] and other["valid"]),
        }
        for (variant, concurrency, trial), p in points.items()
        if variant in variants and (other := points.get((reference, concurrency, trial)))
    ]


def _throughput(workload: str, levels: Sequence[Level]) -> Figure:
    column = "output_throughput_tokens_per_s"
    means = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "value": n.mean(column),
            "said": f"{number(n.mean(column))} tokens/s",
        }
        for n in levels
        if n.mean(column) is not None
    ]
    trials = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "trial": p["trial"],
            "value": p[column],
            "said": f"{number(p[column])} tokens/s",
            "valid": bool(p["valid"]),
        }
        for n in levels
        for p in (*n.valid, *n.invalid)
        if p[column] is not None
    ]
    return _figure(
        "throughput",
        workload,
        levels,
        title="Output throughput",
        note=(
            "Tokens per second received in the window. Lines join the means of the valid trials; "
            "small symbols beside them are trials"
            + ("." if all(t["valid"] for t in trials) else ", hollow ones invalid.")
        ),
        finding=_highest(
            means, "value", lambda r: f"{r['said']} at concurrency {r['concurrency']}"
        ),
        means=means,
        trials=trials,
    )


def _curve(workload: str, levels: Sequence[Level]) -> Figure:
    means = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "rate": rate,
            "value": total,
            "said": f"{number(rate)} tokens/s a request, {number(total)} in all",
        }
        for n in levels
        if (rate := n.mean("decode_rate_tokens_per_s")) is not None
        and (total := n.mean("output_throughput_tokens_per_s")) is not None
    ]
    return _figure(
        "curve",
        workload,
        levels,
        title="What a user gets against what the server gives",
        note=(
            "Median decode rate of one request (across) against total output throughput (up), one "
            "symbol a level with its concurrency; further up and right is better."
        ),
        finding=_highest(
            means, "rate", lambda r: f"{r['said']}, at concurrency {r['concurrency']}"
        ),
        means=means,
    )


def _highest(rows: Sequence[Row], key: str, say: Callable[[Row], str]) -> str:
    """`Highest: a 12 …; b 9 …` – each series' greatest value."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["series"] not in best or row[key] > best[row["series"]][key]:
            best[row["series"]] = row
    said = "; ".join(f"{name} {say(row)}" for name, row in best.items())
    return f"Highest: {said}." if said else "No level has a value."


def _latency(workload: str, levels: Sequence[Level], what: str, title: str) -> Figure:
    means = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "p50": p50 * 1000,
            "p99": None if n.mean(f"{what}_p99") is None else n.mean(f"{what}_p99") * 1000,
            "said": f"p50 {milliseconds(p50)} ms, p99 {milliseconds(n.mean(f'{what}_p99'))} ms",
        }
        for n in levels
        if (p50 := n.mean(f"{what}_p50")) is not None
    ]
    ends: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(means, key=lambda r: r["concurrency"]):
        ends[row["series"]].append(row)
    said = "; ".join(
        f"{name} {number(rows[0]['p50'])} ms at concurrency {rows[0]['concurrency']}"
        + (f", {number(rows[-1]['p50'])} ms at {rows[-1]['concurrency']}" if len(rows) > 1 else "")
        for name, rows in ends.items()
    )
    return _figure(
        "latency",
        workload,
        levels,
        slug=f"{what.removesuffix('_s')}-{workload}",
        title=title,
        note=(
            "Solid symbols: p50; open symbols on thin lines: p99. Means over trials. Closed loop."
        ),
        finding=f"Median: {said}." if said else "No level has a value.",
        means=means,
        unit="ms",
    )


def _acceptance(workload: str, levels: Sequence[Level]) -> Figure:
    means = [
        {
            "variant": n.variant,
            "series": n.variant,
            "concurrency": n.concurrency,
            "value": value,
            "said": f"{value:.2f} tokens a verification",
        }
        for n in levels
        if (value := n.mean("acceptance_length")) is not None
    ]
    return _figure(
        "acceptance",
        workload,
        levels,
        title="Acceptance length",
        note="Tokens a verification step yields: 1 + accepted drafts, by the engine's own counters.",
        finding=_highest(
            means, "value", lambda r: f"{r['said']} at concurrency {r['concurrency']}"
        ),
        series=[(s, s) for s in dict.fromkeys(r["series"] for r in means)],
        means=means,
    )


