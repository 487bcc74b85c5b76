"""A proxy between client and server would be measured with it, and is refused."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from crossover.errors import MeasurementError


def refuse(base_url: str) -> None:
    """Refuse a server that this process's environment reaches through a proxy.

    What is on this machine is never reached through one.

    Raises:
        MeasurementError: HTTP_PROXY, HTTPS_PROXY or ALL_PROXY (or the system's settings) apply to
            the URL and NO_PROXY does not exempt it.
    """
    url = urlsplit(base_url)
    if not url.hostname or _is_loopback(url.hostname):
        return
    configured = getproxies()
    kind = next((k for k in (url.scheme, "all") if configured.get(k)), None)
    if kind is not None and not proxy_bypass(url.netloc):
        raise MeasurementError(
            f"cannot measure {base_url}: {kind.upper()}_PROXY is set, and a proxy's delays would "
            f"be measured as the server's; add {url.hostname} to NO_PROXY if it can be reached "
            "directly"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
