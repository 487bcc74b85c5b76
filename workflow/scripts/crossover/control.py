"""HTTP for everything that is not measured: health, descriptions, counters, cache resets."""

from __future__ import annotations

import httpx

TIMEOUT_S = 10.0


def client(base_url: str, api_key: str | None = None) -> httpx.Client:
    """A client for a server's control plane.

    It keeps no connection, since some servers give each one a thread of a small pool, and uses
    no proxy of the environment.
    """
    return httpx.Client(
        base_url=base_url,
        timeout=TIMEOUT_S,
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        limits=httpx.Limits(max_keepalive_connections=0),
        trust_env=False,
    )
