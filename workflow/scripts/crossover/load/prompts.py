"""Prompts become the exact bytes that are sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from crossover.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from crossover.campaign import Workload
    from crossover.prompt_sets import PromptSet


_DEFAULT_PORTS = {"http": 80, "https": 443}


class Prepared(NamedTuple):
    """One HTTP/1.1 request, ready to be sent."""

    prompt_id: int
    payload: bytes


class Address(NamedTuple):
    """Where measured streams go. scheme: http or https."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, base_url: str) -> Address:
        """The address behind a server's base URL, with or without a final `/v1`.

        Raises:
            MeasurementError: it is no http:// or https:// URL.
        """
        url = urlsplit(base_url)
        if url.scheme not in _DEFAULT_PORTS or not url.hostname:
            raise MeasurementError(
                f"cannot measure {base_url!r}: it must be http://HOST:PORT or https://HOST:PORT, "
                "the address of the server itself"
            )
        prefix = url.path.rstrip("/").removesuffix("/v1")
        port = url.port or _DEFAULT_PORTS[url.scheme]
        return cls(url.scheme, url.hostname, port, f"{prefix}/v1/chat/completions")

    @property
    def host_header(self) -> str:
        """As gateways expect it: without the scheme's own port."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _DEFAULT_PORTS[self.scheme] else f"{name}:{self.port}"


def requests_for(
    workload: Workload,
    prompts: PromptSet,
    *,
    trial: int,
    level: float,
    seed: int,
    model_name: str,
    base_url: str,
    fields: Mapping[str, Any],
    api_key: str | None = None,
) -> Iterator[Prepared]:
    """An endless supply of requests, the same for every variant.

    Seed, workload, trial and level decide which prompts come in which order. A first line of its
    own makes every prompt of a session unique, so that no prefix beyond the chat template can come
    from a cache.

    Args:
        workload: lengths and sampling.
        prompts: the workload's prompt set.
        trial: from 1.
        level: concurrency or request rate.
        seed: of the campaign.
        model_name: as the server calls it.
        base_url: of the server, http:// or https://.
        fields: what the engine adds to the body; `workload.extra_body` wins over it.
        api_key: goes into the Authorization header.
    """
    drawn = prompts.drawn(f"{seed} prompts {workload.name} {trial} {level}")
    address = Address.of(base_url)
    head = (
        f"POST {address.path} HTTP/1.1\r\n"
        f"Host: {address.host_header}\r\n"
        "Content-Type: application/json\r\n"
        "Accept: text/event-stream\r\n"
        + (f"Authorization: Bearer {api_key}\r\n" if api_key else "")
        + "Content-Length: "
    ).encode()
    body = {
        "model": model_name,
        "messages": [],
        "max_tokens": workload.max_tokens,
        "temperature": workload.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"ignore_eos": True} if workload.ignore_eos else {}),
        **fields,
        **workload.extra_body,
    }
    for index, (prompt_id, prompt) in enumerate(drawn):
        line = f"Request {workload.name}-{trial}-{level}-{index:04d}"
        body["messages"] = [{"role": "user", "content": f"{line}\n\n{prompt}"}]
        encoded = json.dumps(body, separators=(",", ":")).encode()
        yield Prepared(prompt_id, b"%b%d\r\n\r\n%b" % (head, len(encoded), encoded))
