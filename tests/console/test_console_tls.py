# SPDX-License-Identifier: Apache-2.0
"""The console beyond this machine: over TLS, or not at all."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from headrace.console.listening import ConsoleError
from headrace.console.run import Console
from headrace.console.settings import ConsoleSettings
from support.console import LocalConsole, basic
from support.timeouts import PATIENCE_S


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "127.0.0.1,0.0.0.0", "example.org"])
def test_passwords_do_not_cross_the_network_in_clear(tmp_path: Path, host: str) -> None:
    settings = ConsoleSettings(socket=tmp_path / "none", host=host, port=0, metrics_port=0)
    with pytest.raises(ConsoleError, match="not a loopback address"):
        asyncio.run(Console(settings).start())


def issue(authority: trustme.CA, home: Path) -> tuple[Path, Path]:
    """Write a new certificate and its key over those of before."""
    certificate = authority.issue_cert("localhost")
    chain, key = home / "chain.pem", home / "key.pem"
    chain.write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    return chain, key


def served(port: int, context: ssl.SSLContext) -> bytes:
    """Return the certificate that a new connection gets."""
    with (
        socket.create_connection(("localhost", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as end,
    ):
        found = end.getpeercert(binary_form=True)
        assert found is not None
        return found


def test_over_tls_browsers_are_told_to_stay_with_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    chain, key = issue(authority, tmp_path)
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


def test_a_console_with_tls_passes_the_checks_of_http_and_https(tmp_path: Path) -> None:
    authority = trustme.CA()
    chain, key = issue(authority, tmp_path)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with LocalConsole(tmp_path, tls_cert=chain, tls_key=key) as console:
        connection = http.client.HTTPSConnection(
            "localhost", console.port, context=context, timeout=PATIENCE_S
        )
        names = "http,https,management,https%2Fprometheus"
        path = f"/api/health/checks/protocol-listener/{names}"
        connection.request("GET", path, headers={"Authorization": basic("guest", "guest")})
        assert connection.getresponse().status == 200
        connection.close()


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    chain = tmp_path / "chain.pem"
    chain.write_text("no certificate")
    settings = ConsoleSettings(socket=tmp_path / "none", port=0, tls_cert=chain)
    with pytest.raises(ConsoleError, match=r"chain\.pem"):
        asyncio.run(Console(settings).start())


def test_certificates_that_expire_are_told(tmp_path: Path) -> None:
    authority, now = trustme.CA(), datetime.now(UTC)
    for name, days in (("default", 20), ("other", 200)):
        leaf = authority.issue_cert(name, not_after=now + timedelta(days=days))
        (tmp_path / f"{name}.pem").write_bytes(leaf.cert_chain_pems[0].bytes())
        (tmp_path / f"{name}.key").write_bytes(leaf.private_key_pem.bytes())
    files = {"tls_cert": tmp_path / "default.pem", "tls_key": tmp_path / "default.key"}
    names = f"other={tmp_path}/other.pem,{tmp_path}/other.key"
    settings = {**files, "tls_port": 0, "tls_server_names": names}
    with LocalConsole(tmp_path / "data", broker=settings) as console:
        path = "/api/health/checks/certificate-expiration"
        assert console.get(f"{path}/19/days") == {"status": "ok"}
        answer = console.ask("GET", f"{path}/1/months")
        assert (answer.status, answer.json["reason"]) == (503, "Certificates expiring")
        (row,) = answer.json["expired"]
        assert (row["name"], row["certfile"]) == ("tls_cert", str(tmp_path / "default.pem"))
        (told,) = row["certfile_expires_on"]
        assert abs(datetime.fromisoformat(told) - now - timedelta(days=20)) < timedelta(seconds=2)
        both = console.ask("GET", f"{path}/52/weeks").json["expired"]
        assert [one["name"] for one in both] == ["tls_cert", "tls_server_names"]
        assert console.ask("GET", f"{path}/9999/years").status == 503
        for period in ("1/hours", "-1/days", "99999/days"):
            assert console.ask("GET", f"{path}/{period}").status == 400


def test_a_renewed_certificate_is_used_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    chain, key = issue(authority, tmp_path)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with LocalConsole(tmp_path, tls_cert=chain, tls_key=key) as console:
        first = served(console.port, context)
        assert served(console.port, context) == first
        key.write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())
        console.run(renew(console))
        assert served(console.port, context) == first, "half of a pair changes nothing"
        assert "the certificate stays as it was" in caplog.text
        issue(authority, tmp_path)
        deadline = time.monotonic() + PATIENCE_S
        while served(console.port, context) == first:  # The console looks once a second.
            assert time.monotonic() < deadline
        second = served(console.port, context)
        issue(authority, tmp_path)
        console.run(renew(console))
        assert served(console.port, context) not in (first, second)


async def renew(console: LocalConsole) -> None:
    """Do what SIGHUP does."""
    assert console.console is not None
    console.console.renew_certificate()
