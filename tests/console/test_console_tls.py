# SPDX-License-Identifier: Apache-2.0
"""The console beyond this machine: over TLS, or not at all."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from pathlib import Path

import pytest
import trustme

from headrace.console.run import Console, ConsoleError
from headrace.console.settings import ConsoleSettings
from support.console import LocalConsole, basic
from support.timeouts import PATIENCE_S


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "127.0.0.1,0.0.0.0", "example.org"])
def test_passwords_do_not_cross_the_network_in_clear(tmp_path: Path, host: str) -> None:
    settings = ConsoleSettings(socket=tmp_path / "none", host=host, port=0, metrics_port=0)
    with pytest.raises(ConsoleError, match="not a loopback address"):
        asyncio.run(Console(settings).start())


def test_over_tls_browsers_are_told_to_stay_with_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with LocalConsole(tmp_path, tls_cert=chain, tls_key=key) as console:
        assert console.addresses["http"].startswith("https://")
        connection = http.client.HTTPSConnection(
            "localhost", console.port, context=context, timeout=PATIENCE_S
        )
        connection.request("GET", "/api/whoami", headers={"Authorization": basic("guest", "guest")})
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Strict-Transport-Security"].startswith("max-age=")
        connection.close()


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    chain = tmp_path / "chain.pem"
    chain.write_text("no certificate")
    settings = ConsoleSettings(socket=tmp_path / "none", port=0, tls_cert=chain)
    with pytest.raises(ConsoleError, match=r"chain\.pem"):
        asyncio.run(Console(settings).start())
