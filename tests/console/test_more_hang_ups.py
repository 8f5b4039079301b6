# SPDX-License-Identifier: Apache-2.0
"""Hanging up is no error, wherever in a request or an answer, and with TLS."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from headrace.console.auth.addresses import client_address
from support.brokers.broker_process import until
from support.console import LocalConsole, basic
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse


QUEUES = 3000
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, with a reset.
AUTHORIZED = f"Host: localhost\r\nAuthorization: {basic('guest', 'guest')}\r\n"
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"
#: Where clients hang up: what they have sent, and how many bytes of the answer they have read.
WHERE = {
    "in the header": ("GET /api/queues HTT", 0),
    "before the answer": (f"GET /api/queues HTTP/1.1\r\n{AUTHORIZED}\r\n", 0),
    "in a list": (f"GET /api/queues HTTP/1.1\r\n{AUTHORIZED}\r\n", 1000),
    "in a sorted list": (f"GET /api/queues?sort=name HTTP/1.1\r\n{AUTHORIZED}\r\n", 1000),
    "in a page of a list": (f"GET /api/queues?page=1 HTTP/1.1\r\n{AUTHORIZED}\r\n", 1000),
    "in a compressed answer": (
        f"GET /api/definitions HTTP/1.1\r\n{AUTHORIZED}Accept-Encoding: gzip\r\n\r\n",
        1000,
    ),
    "in a file": (f"GET /api/definitions?download=x.json HTTP/1.1\r\n{AUTHORIZED}\r\n", 1000),
    "in events": (f"GET /api/headrace/events HTTP/1.1\r\n{AUTHORIZED}\r\n", 10),
    "in a login": (
        f"POST /login HTTP/1.1\r\nHost: localhost\r\n{FORM}Content-Length: 100\r\n\r\nuser",
        0,
    ),
    "in an import": (
        f"POST /api/definitions HTTP/1.1\r\n{AUTHORIZED}Content-Length: 9000000\r\n\r\n" + "{" * 9,
        0,
    ),
    "in chunks": (
        f"POST /api/definitions HTTP/1.1\r\n{AUTHORIZED}Transfer-Encoding: chunked\r\n\r\n5\r\n{{",
        0,
    ),
    "after several requests": (f"GET /api/queues HTTP/1.1\r\n{AUTHORIZED}\r\n" * 20, 1000),
}


@pytest.fixture(scope="module", params=["clear", "tls"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LocalConsole, ssl.SSLContext | None]]:
    """A console with much to tell, and what its clients need for TLS."""
    home = tmp_path_factory.mktemp("data")
    context: ssl.SSLContext | None = None
    settings: dict[str, Any] = {}
    if request.param == "tls":
        authority = trustme.CA()
        context = ssl.create_default_context()
        authority.configure_trust(context)
        certificate = authority.issue_cert("localhost")
        chain, key = home / "chain.pem", home / "key.pem"
        chain.write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
        key.write_bytes(certificate.private_key_pem.bytes())
        settings = {"tls_cert": chain, "tls_key": key}
    with LocalConsole(home, **settings) as console:
        link = console.console.link  # type: ignore[union-attr]
        queues = [{"name": f"gone.{at}.{'x' * 150}", "vhost": "/"} for at in range(QUEUES)]
        rows = [{"section": "queues", "first": 0, "values": queues}]
        console.run(link.ask("import definitions", rows=rows))
        yield console, context


@pytest.mark.parametrize("how", ["reset", "end"])
@pytest.mark.parametrize("where", WHERE)
def test_a_hang_up_anywhere_is_no_error(
    served: tuple[LocalConsole, ssl.SSLContext | None],
    caplog: pytest.LogCaptureFixture,
    where: str,
    how: str,
) -> None:
    console, context = served
    sent, read = WHERE[where]
    for _ in range(8):
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.settimeout(PATIENCE_S)
        end.connect(("127.0.0.1", console.port))
        if context is not None:
            end = context.wrap_socket(end, server_hostname="localhost")
        with end:
            end.sendall(sent.encode())
            while read > 0:
                read -= len(end.recv(read))
            if how == "reset":
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    assert console.console is not None
    server = console.console._applications[0].server
    until(lambda: not server.connections and not server._stalled, "all have gone")
    until(lambda: not console.console._applications[0]._of_user._running, "no request is served")  # type: ignore[union-attr]
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


@pytest.mark.parametrize("served", ["clear"], indirect=True)
@pytest.mark.parametrize("where", ["in an import", "in a login", "in a list", "in events"])
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ENETDOWN, "Network is down"),
        TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
        ssl.SSLError(1, "bad record mac"),
    ],
    ids=["unreachable", "down", "timeout", "tls"],
)
def test_a_network_that_ends_is_no_error(
    served: tuple[LocalConsole, ssl.SSLContext | None],
    caplog: pytest.LogCaptureFixture,
    where: str,
    error: OSError,
) -> None:
    """The system tells of it by errors of other types than a hang-up."""
    console, _ = served
    sent, read = WHERE[where]
    application = console.console._applications[0]  # type: ignore[union-attr]
    until(lambda: not application.server.connections, "there are no others")
    with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
        end.sendall(sent.encode())
        while read > 0:
            read -= len(end.recv(read))
        until(lambda: any(one.is_served for one in application.server.connections), "it is served")
        (connection,) = application.server.connections
        console.run(lose(connection.transport, error))
        until(lambda: not application.server.connections, "it has gone")
        until(
            lambda: not application._of_user._running and not application._of_strangers._running,
            "it has ended",
        )
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []


async def lose(transport: Any, error: OSError) -> None:
    transport._fatal_error(error)


def test_a_client_that_has_gone_is_still_known(
    console: LocalConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for another, whose login is refused, logged, and counted as a failure."""
    peers: list[tuple[str, bool]] = []
    application = console.console._applications[0]  # type: ignore[union-attr]
    answer = application._answer

    async def late(request: BaseRequest) -> StreamResponse:
        if request.path == "/api/overview":
            assert request.transport is not None
            request.transport.abort()
            while request.transport is not None:
                await asyncio.sleep(0)
        try:
            return await answer(request)
        finally:
            peers.append((client_address(request), request.remote == "127.0.0.1"))

    monkeypatch.setattr(application, "_answer", late)
    with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
        mine = f"127.0.0.1:{end.getsockname()[1]}"
        end.sendall(f"GET /api/overview HTTP/1.1\r\n{AUTHORIZED}\r\n".encode())
        until(lambda: peers, "it is served")
    assert peers == [(mine, True)]
