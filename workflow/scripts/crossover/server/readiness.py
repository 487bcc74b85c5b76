"""Ready means: our own streamed request was answered, by the process that we started."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import httpx

from crossover import control, engines, gpu
from crossover.campaign import Variant, from_shell
from crossover.engines.base import Description, Engine
from crossover.errors import StartupError
from crossover.files import write_json
from crossover.server import device_memory, environment, process_table, processes, session
from crossover.server.ending import ended
from crossover.server.session import Handle, log_tail

_POLL_S = 0.1
_REPORT_S = 1.0
_HEALTH_TIMEOUT_S = 5.0
"""Shorter than other requests: meanwhile nobody sees that the server has ended."""

_PROBE_TOKENS = 8


@dataclass(frozen=True)
class Probe:
    """What our own streamed request got: None where nothing came."""

    text: str
    finish_reason: str | None
    output_tokens: int | None
    error: str | None = None

    @property
    def problem(self) -> str | None:
        """What is missing from a correct answer; None: nothing."""
        if self.error is not None:
            return f"it sent an error: {self.error}"
        if self.output_tokens is None:
            return "it sent no usage although stream_options.include_usage was set"
        if self.output_tokens < 2:
            return f"it generated {self.output_tokens} tokens, at least 2 are needed"
        if not self.text:
            return "it sent no content"
        if self.finish_reason is None:
            return "it sent no finish reason"
        return None


@dataclass(frozen=True)
class Ready:
    """A server that has answered."""

    ready_after_s: float
    description: Description


def check(
    handle_path: str,
    health_path: str,
    variant: Variant,
    report: Callable[[str], None] = lambda _: None,
) -> Ready:
    """Wait until the server of a handle is ready; write health.json and the session's record.

    Raises:
        StartupError: see `wait_until_ready`.
    """
    handle = Handle.read(handle_path)
    if handle is None:
        raise StartupError(
            f"{variant.name}: no handle at {handle_path}; run the same command again"
        )
    engine = engines.get(variant.engine)
    key = from_shell(variant.api_key) if variant.api_key else None
    ready_after_s = wait_until_ready(handle, variant, engine, key, report)
    try:
        with control.client(handle.base_url, key) as http:
            description = engine.describe(http)
    except httpx.HTTPError as error:
        _check_alive(handle, variant)
        raise StartupError(
            _with_log(f"{variant.name}: ready, but it does not describe itself: {error}", handle)
        ) from None
    described = json.dumps(asdict(description))
    hide = environment.hider(variant) or str
    facts = {
        "ready_after_s": ready_after_s,
        "engine_version": description.engine_version,
        "description": hide(described),
    }
    session.append(handle.record, "ready", **facts)
    write_json({**asdict(handle), **facts}, health_path)
    return Ready(ready_after_s, description)


def wait_until_ready(
    handle: Handle,
    variant: Variant,
    engine: Engine,
    api_key: str | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> float:
    """Block until the server is ready; returns the seconds from its start.

    Raises:
        StartupError: it died, answers wrongly, is not the one that we started, or is not ready
            in `variant.startup_timeout_s`; with the last lines of its log.
    """
    deadline = handle.started_s + variant.startup_timeout_s
    seen = "no answer yet"
    last_report = handle.started_s
    with control.client(handle.base_url, api_key) as http:
        while True:
            _check_alive(handle, variant)
            answered, seen = _is_healthy(http, engine.health_path)
            if answered:
                if variant.stop is None:  # a container's processes are not below its command
                    _check_listener(handle)
                probe_answer, seen = _try_probe(
                    http, handle, variant, max(1.0, deadline - time.monotonic())
                )
                if probe_answer:
                    return time.monotonic() - handle.started_s
            now = time.monotonic()
            if now > deadline:
                raise StartupError(
                    _with_log(
                        f"{variant.name}: not ready after {variant.startup_timeout_s:g} s; last "
                        f"seen: {seen}; raise startup_timeout_s if it only needs longer",
                        handle,
                    )
                )
            if now - last_report > _REPORT_S:
                last_report = now
                report(
                    f"{variant.name}: waiting for the server, {now - handle.started_s:.0f} s: "
                    f"{seen}; log: {log_tail(handle.server_log, 1)}"
                )
            time.sleep(_POLL_S)


def _is_healthy(http: httpx.Client, path: str | None) -> tuple[bool, str]:
    if path is None:
        return True, "no health route"
    try:
        answer = http.get(path, timeout=_HEALTH_TIMEOUT_S)
    except httpx.HTTPError as error:
        return False, f"GET {path}: {type(error).__name__}"
    return answer.status_code < 400, f"GET {path}: {answer.status_code}"


def _try_probe(
    http: httpx.Client, handle: Handle, variant: Variant, timeout_s: float
) -> tuple[bool, str]:
    """(True, …) when the probe is answered; a server that is up and answers wrongly is an error."""
    hide = environment.hider(variant) or str
    try:
        problem = probe(http, variant.model.name, timeout_s).problem
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        seen = f"POST /v1/chat/completions: {status} {hide(error.response.text)[:200]!r}"
        if status == 503:  # some engines say healthy before the model is loaded
            return False, seen
        raise StartupError(
            _with_log(
                f"{variant.name}: healthy, but our request for model {variant.model.name!r} "
                f"failed: {seen}{_models_served(http)}",
                handle,
            )
        ) from None
    except httpx.HTTPError as error:
        return False, f"POST /v1/chat/completions: {type(error).__name__}"
    if problem:
        raise StartupError(
            _with_log(
                f"{variant.name}: healthy, but our request was not answered: {hide(problem)}",
                handle,
            )
        )
    return True, "ready"


def _models_served(http: httpx.Client) -> str:
    """The names that the server itself gives, for a message; empty where it gives none."""
    try:
        names = [model["id"] for model in http.get("/v1/models").json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return ""
    return f"; it serves {', '.join(map(repr, names))}"


def probe(http: httpx.Client, model: str, timeout_s: float) -> Probe:
    """One short streamed chat request.

    Raises:
        httpx.HTTPError: no connection, a broken stream, or a status of 400 and above.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Count from one to ten."}],
        "max_tokens": _PROBE_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    text, finish, tokens, failure = "", None, None, None
    with http.stream("POST", "/v1/chat/completions", json=body, timeout=timeout_s) as answer:
        if answer.status_code >= 400:
            answer.read()
            answer.raise_for_status()
        for line in answer.iter_lines():
            if not line.startswith("data:") or line[5:].strip() == "[DONE]":
                continue
            try:
                event = json.loads(line[5:])
            except ValueError:
                return Probe(text, finish, tokens, error=f"no JSON: {line[:200]!r}")
            if "error" in event:
                failure = str(event["error"])[:200]
            if usage := event.get("usage"):
                tokens = usage.get("completion_tokens")
            for choice in event.get("choices") or []:
                delta = choice.get("delta") or {}
                text += delta.get("content") or delta.get("reasoning_content") or ""
                finish = choice.get("finish_reason") or finish
    return Probe(text, finish, tokens, failure)


def _check_alive(handle: Handle, variant: Variant) -> None:
    """Raise StartupError with how the server ended, and with what may have been in its way."""
    if (how := ended(handle, "the server ended during start-up")) is None:
        return
    hints = []
    if handle.port is not None and (listener := process_table.listener(handle.port)):
        hints.append(f"port {handle.port} is held by {process_table.describe(listener.pid)}")
    before = session.read(handle.record).get("gpu_memory_before_bytes") or ()
    for device, used in zip(gpu.of(variant.devices), before, strict=False):
        if used > device_memory.NOTED_BYTES:
            hints.append(f"before the start {used / 2**20:.0f} MiB of {device} were in use already")
    raise StartupError("\n".join([how, *hints]))


def _check_listener(handle: Handle) -> None:
    """Refuse a port that a process answers which is not of this session."""
    if handle.port is None:
        return
    listener = process_table.listener(handle.port)
    if listener is None:
        return
    ours = {p.pid for p in process_table.descendants(processes.pid_of(handle.supervisor))}
    if listener.pid not in ours:
        raise StartupError(
            _with_log(
                f"{handle.variant}: port {handle.port} is answered by "
                f"{process_table.describe(listener.pid)}, which is not the server that was started",
                handle,
            )
        )


def _with_log(message: str, handle: Handle) -> str:
    return f"{message}\nlast lines of {handle.server_log}:\n{log_tail(handle.server_log)}"
