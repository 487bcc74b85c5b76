"""HTTP for everything that is not measured: health, descriptions, counters, cache resets."""

from __future__ import annotations

import ssl

import httpx

from crossover.errors import ServerError
from crossover.load import tls

TIMEOUT_S = 10.0


def client(base_url: str, api_key: str | None = None) -> httpx.Client:
    """A client for a server's control plane, which trusts whom the load client trusts.

    It keeps no connection, since some servers give each one a thread of a small pool, and uses
    no proxy of the environment. Beside what httpx raises, its requests raise ServerError where
    the server's certificate is refused.
    """
    return httpx.Client(
        base_url=base_url,
        timeout=TIMEOUT_S,
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        transport=_Transport(
            verify=tls.context() if base_url.startswith("https:") else False,
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        ),
        trust_env=False,
    )


class _Transport(httpx.HTTPTransport):
    """Tells a refused certificate, which will not change, from a server that is not up yet."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return super().handle_request(request)
        except httpx.ConnectError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
                cause = cause.__cause__ or cause.__context__
            if cause is None:
                raise
            origin = f"{request.url.scheme}://{request.url.netloc.decode()}"
            raise ServerError(tls.distrust(origin, cause.verify_message)) from None
