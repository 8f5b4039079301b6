# SPDX-License-Identifier: Apache-2.0
"""A client that hangs up in an answer is no error of the console."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import until
from support.console import basic
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from support.console import LocalConsole

QUEUES = 3000
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, with a reset.


@pytest.mark.parametrize("how", ["reset", "end"])
@pytest.mark.parametrize(
    ("port", "path"),
    [
        ("port", "/api/queues"),
        ("port", "/api/definitions"),
        ("metrics_port", "/metrics/per-object"),
    ],
)
def test_a_hang_up_is_no_error(
    console: LocalConsole, caplog: pytest.LogCaptureFixture, port: str, path: str, how: str
) -> None:
    if not console.get("/api/queues?name=gone.&page=1")["filtered_count"]:
        queues = [{"name": f"gone.{at}.{'x' * 150}", "vhost": "/"} for at in range(QUEUES)]
        console.ask("POST", "/api/definitions", {"queues": queues})
    caplog.clear()
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('guest', 'guest')}"
    for _ in range(8):
        with socket.socket() as end:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            end.settimeout(PATIENCE_S)
            end.connect(("127.0.0.1", getattr(console, port)))
            end.sendall(f"{request}\r\n\r\n".encode())
            assert end.recv(1000)
            if how == "reset":
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    until(lambda: console.ask("GET", "/api/whoami").status == 200, "the console answers")
    assert [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"] == []
