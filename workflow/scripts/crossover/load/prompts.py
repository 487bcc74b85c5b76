"""Prompts become the exact bytes that are sent."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from crossover.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from crossover.campaign import Workload


class Prepared(NamedTuple):
    """One HTTP/1.1 request, ready to be sent."""

    prompt_id: int
    payload: bytes


class Address(NamedTuple):
    """Where measured streams go."""

    host: str
    port: int
    path: str

    @classmethod
    def of(cls, base_url: str) -> Address:
        """The address behind a server's base URL, with or without a final `/v1`.

        Raises:
            MeasurementError: it is no http:// URL.
        """
        url = urlsplit(base_url)
        if url.scheme != "http" or not url.hostname:
            raise MeasurementError(
                f"cannot measure {base_url!r}: measured streams go over plain http:// only; give "
                "the address of the server itself, not of a TLS proxy in front of it"
            )
        prefix = url.path.rstrip("/").removesuffix("/v1")
        return cls(url.hostname, url.port or 80, f"{prefix}/v1/chat/completions")


def requests_for(
    workload: Workload,
    prompts: Sequence[str],
    *,
    trial: int,
    concurrency: int,
    seed: int,
    model_name: str,
    base_url: str,
    fields: Mapping[str, Any],
    api_key: str | None = None,
) -> Iterator[Prepared]:
    """An endless supply of requests, the same for every variant.

    The order is drawn from seed, workload, trial and concurrency, and repeated when the prompt
    set is used up. A first line of its own makes every prompt of a session unique, so that no
    prefix beyond the chat template can come from a cache (METHOD §1).

    Args:
        workload: lengths and sampling.
        prompts: the workload's prompt set.
        trial: from 1.
        concurrency: the level.
        seed: of the campaign.
        model_name: as the server calls it.
        base_url: of the server, http:// only.
        fields: what the engine adds to the body; `workload.extra_body` wins over it.
        api_key: goes into the Authorization header.
    """
    order = list(range(len(prompts)))
    random.Random(f"{seed} prompts {workload.name} {trial} {concurrency}").shuffle(order)
    host, port, path = Address.of(base_url)
    head = (
        f"POST {path} HTTP/1.1\r\n"
        f"Host: {f'[{host}]' if ':' in host else host}:{port}\r\n"
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
    index = 0
    while True:
        for prompt_id in order:
            line = f"Request {workload.name}-{trial}-{concurrency}-{index:04d}"
            content = f"{line}\n\n{prompts[prompt_id]}"
            body["messages"] = [{"role": "user", "content": content}]
            encoded = json.dumps(body, separators=(",", ":")).encode()
            yield Prepared(prompt_id, b"%b%d\r\n\r\n%b" % (head, len(encoded), encoded))
            index += 1
