"""TLS: the session alone, cut anywhere, and over real sockets."""

import contextlib
import socket
import ssl
import threading

import pytest
import trustme
from loads import QUICK, classes, plain_requests, put_load
from sse_server import (
    CLOSE,
    CLOSE_NOTIFY,
    HEAD,
    LAST_CHUNK,
    SseServer,
    answer,
    chunked,
    content,
    event,
    usage,
)

from crossover import control
from crossover.errors import MeasurementError, ServerError
from crossover.load import tls
from crossover.load.arrivals import ClosedLoop
from crossover.load.client import run_load
from crossover.load.tls import Tls

AUTHORITY = trustme.CA()
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
GOOD_BODY = event(content("a")) + event(content(None, "stop")) + event(usage(1))


def server_context(*names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(*(names or ("127.0.0.1", "localhost"))).configure_cert(context)
    return context


@pytest.fixture
def trusted(tmp_path, monkeypatch):
    """The authority of the tests is the one in SSL_CERT_FILE."""
    AUTHORITY.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    tls.context.cache_clear()
    yield
    tls.context.cache_clear()


class Peer:
    """The server's side of a session without a socket."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.received, self.to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.received, self.to_send, server_side=True)


def shake_hands(client: Tls, peer: Peer) -> None:
    """Both sides, the client's reads a byte each."""
    done = client.shake_hands(b"")
    for _ in range(4):
        peer.received.write(client.encrypted())
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.session.do_handshake()
        reply = peer.to_send.read()
        for i in range(len(reply)):
            if not done:
                done = client.shake_hands(reply[i : i + 1])
            else:
                assert client.decrypt(reply[i : i + 1]) == b""  # session tickets
    assert done


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_records_cut_anywhere_and_several_in_a_read(version):
    context = server_context()
    context.maximum_version = version
    client, peer = Tls("127.0.0.1"), Peer(context)
    shake_hands(client, peer)

    peer.session.write(b"x" * 300)
    record = peer.to_send.read()
    assert [client.decrypt(record[i : i + 1]) for i in range(len(record))] == [
        *[b""] * (len(record) - 1),
        b"x" * 300,
    ]

    for word in (b"one ", b"two ", b"three"):
        peer.session.write(word)
    records = peer.to_send.read()
    assert client.decrypt(records[:-3]) == b"one two "
    assert client.decrypt(records[-3:]) == b"three"

    request = b"r" * 40_000
    peer.received.write(client.encrypted(request))
    assert b"".join(peer.session.read(16384) for _ in range(3)) == request

    with pytest.raises(ssl.SSLWantReadError):
        peer.session.unwrap()
    assert not client.closed
    assert client.decrypt(peer.to_send.read()) == b""
    assert client.closed


@pytest.mark.usefixtures("trusted")
def test_load_over_tls():
    with SseServer(lambda n, b: answer(events=5, gap_s=0.004), server_context()) as server:
        run, answers = put_load(server, 3)
    assert classes(answers) == set()
    assert {(a.output_tokens, len(a.sizes)) for a in answers if a.status == "ok"} == {(5, 5)}
    assert server.connections == 3
    assert len(run.connect_s) == 3


@pytest.mark.usefixtures("trusted")
def test_tls_has_the_stamps_that_plain_sockets_have():
    with SseServer(lambda n, b: answer(events=5, gap_s=0.004)) as server:
        plain, _ = put_load(server)
    with SseServer(lambda n, b: answer(events=5, gap_s=0.004), server_context()) as server:
        encrypted, _ = put_load(server)
    assert encrypted.stamp_source == plain.stamp_source


@pytest.mark.usefixtures("trusted")
def test_large_requests_are_sent_whole_over_tls():
    def requests(url):
        for prepared in plain_requests(url):
            body = b'{"number":%d,"fill":"%b"}' % (prepared.prompt_id, b"x" * 4_000_000)
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            yield prepared._replace(payload=head + body)

    with SseServer(lambda n, b: answer(events=2), server_context()) as server:
        run_load(server.url, requests(server.url), ClosedLoop(1, 0.05), QUICK)
    assert {len(b["fill"]) for b in server.bodies} == {4_000_000}


@pytest.mark.usefixtures("trusted")
def test_end_of_connection_ends_an_answer_only_with_close_notify():
    def script(number, body):
        return iter([UNTIL_CLOSED + GOOD_BODY, CLOSE if number == 0 else CLOSE_NOTIFY])

    with SseServer(script, server_context()) as server:
        _, answers = put_load(server)
    assert [a.error_class for a in answers if a.status == "failed"] == ["truncated"]
    assert sum(a.status == "ok" for a in answers) >= 3


@pytest.mark.usefixtures("trusted")
def test_new_connections_are_opened_during_the_run():
    def script(number, body):
        return iter([HEAD + chunked(GOOD_BODY) + LAST_CHUNK, 0.005, CLOSE])

    with SseServer(script, server_context()) as server:
        run, answers = put_load(server, 2)
    assert classes(answers) == set()
    assert len(run.connect_s) > 2


def test_unknown_authority_is_a_clear_error():
    with (
        SseServer(lambda n, b: answer(), server_context()) as server,
        pytest.raises(MeasurementError, match=r"does not prove who it is: .*SSL_CERT_FILE"),
    ):
        put_load(server)


@pytest.mark.usefixtures("trusted")
def test_certificate_of_another_host_is_a_clear_error():
    with (
        SseServer(lambda n, b: answer(), server_context("other.example")) as server,
        pytest.raises(MeasurementError, match=r"who it is: IP address mismatch"),
    ):
        put_load(server)


def test_server_without_tls_is_a_clear_error():
    def answer_in_the_clear():
        sock, _ = listener.accept()
        with sock:
            sock.recv(65536)
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            sock.recv(65536)  # closing right away would reset the connection

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_in_the_clear)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(MeasurementError, match=r"cannot connect to https://.*TLS handshake"):
            run_load(url, plain_requests(url), ClosedLoop(1, 0.05), QUICK)
        thread.join()


@pytest.mark.usefixtures("trusted")
def test_the_control_plane_trusts_whom_the_load_client_trusts():
    with (
        SseServer(lambda n, b: answer(events=1), server_context()) as server,
        control.client(server.url) as http,
    ):
        assert http.post("/v1/chat/completions", json={}).status_code == 200


def test_the_control_plane_says_clearly_what_it_does_not_trust():
    with (
        SseServer(lambda n, b: answer(events=1), server_context()) as server,
        control.client(server.url) as http,
        pytest.raises(ServerError, match=r"does not prove who it is: .*SSL_CERT_FILE"),
    ):
        http.get("/health")
