# SPDX-License-Identifier: Apache-2.0
"""A broker that stops closes the connections that it has just accepted."""

from __future__ import annotations

import gc
import socket
from typing import TYPE_CHECKING

import pytest

from headrace.testing import LocalBroker
from support.certificates_and_tokens import Certificates
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("kind", ["amqp", "amqps", "management"])
def test_what_is_accepted_is_closed(tmp_path: Path, kind: str, turns: int) -> None:
    cert, key, _ = Certificates(tmp_path).issue("localhost", "localhost")
    data = tmp_path / "data"
    settings = {"tls_port": "0", "tls_cert": str(cert), "tls_key": str(key)}
    broker = LocalBroker(data, **settings).start()
    loop, stopping, thread = broker._loop, broker._stopping, broker._thread
    assert loop is not None
    assert stopping is not None
    assert thread is not None

    def connect() -> None:
        if kind == "management":
            client.connect(str(data / "management.sock"))
        else:
            client.connect(("127.0.0.1", int(broker.addresses[kind].rpartition(":")[2])))
        later(turns)

    def later(left: int) -> None:
        act: Callable[[], object] = (lambda: later(left - 1)) if left else stopping.set
        loop.call_soon(act)

    family = socket.AF_UNIX if kind == "management" else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(PATIENCE_S)
        loop.call_soon_threadsafe(connect)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    gc.collect()  # What is collected open fails the test.
