"""TLS between plain reads and writes of a socket, so that its kernel stamps are kept."""

from __future__ import annotations

import functools
import ssl

_PLAIN_BYTES = 65536


@functools.cache
def context() -> ssl.SSLContext:
    """Verifies servers by the system's store of authorities, or SSL_CERT_FILE and SSL_CERT_DIR."""
    made = ssl.create_default_context()
    made.set_alpn_protocols(["http/1.1"])
    made.options |= ssl.OP_NO_RENEGOTIATION  # a write would have to wait for a read
    return made


def distrust(base_url: str, reason: str) -> str:
    """What to tell a user whose server's certificate was refused."""
    return (
        f"{base_url} does not prove who it is: {reason}; name the file of the "
        "authority that signed its certificate in SSL_CERT_FILE, or give the address that the "
        "certificate is for"
    )


class Tls:
    """One TLS session. Bytes for the socket are what `encrypted` returns, in that order.

    closed: the server has said that it sends nothing more (close_notify).
    """

    def __init__(self, host: str) -> None:
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context().wrap_bio(self._received, self._to_send, server_hostname=host)
        self.closed = False

    def shake_hands(self, received: bytes) -> bool:
        """Go on with the handshake; True: it is done.

        Raises:
            ssl.SSLError: the server speaks no TLS, or its certificate is refused.
        """
        self._received.write(received)
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def decrypt(self, received: bytes) -> bytes:
        """What `received` completes: nothing, or the content of one record or several.

        Raises:
            ssl.SSLError: it is no TLS.
        """
        self._received.write(received)
        plain = []
        while not self.closed and (self._received.pending or self._session.pending()):
            try:
                data = self._session.read(_PLAIN_BYTES)
            except ssl.SSLWantReadError:
                break
            plain.append(data)
            self.closed = not data
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def encrypted(self, plain: bytes = b"") -> bytes:
        """What the socket is to send for `plain`, after what TLS itself has to say."""
        if plain:
            self._session.write(plain)
        return self._to_send.read()
