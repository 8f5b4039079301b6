# SPDX-License-Identifier: Apache-2.0
"""What every client of TLS says of a certificate that strict verification refuses (RFC 5280)."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from headrace import certificate_faults
from headrace.client import ConnectFailed, connect
from headrace.client.url import parse_url
from headrace.columns.errors import RegistryError
from headrace.columns.options.decode_options import RegistryAddress
from headrace.columns.registry.client import Registry
from headrace.console.auth.oauth import AuthorizationError, request_token
from headrace.console.settings import OAuthClient
from headrace.server.login.jwks import make_loader
from headrace.spec.tables import V0_9_1
from headrace.testing import LocalBroker
from support.certificates_and_tokens import Certificates
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAID = (
    r"certificate.* is refused: CERTIFICATE_VERIFY_FAILED, Missing Authority Key Identifier: by RFC"
    r" 5280, which Python checks since 3\.13, every certificate but a root must have the extension "
    r"authorityKeyIdentifier; the authority must issue the certificate anew"
)


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority whose certificates lack the identifiers of keys."""
    return Certificates(tmp_path_factory.mktemp("loose"), strict=False)


@pytest.fixture(scope="module")
def port(loose: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker with such a certificate."""
    cert, key, _ = loose.issue("localhost", "localhost")
    with LocalBroker(tls_port=0, tls_cert=cert, tls_key=key) as broker:
        yield int(broker.addresses["amqps"].rpartition(":")[2])


@pytest.fixture(autouse=True)
def _as_since_python_3_13(loose: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ssl.create_default_context

    def strict(*args: ssl.Purpose, cafile: Path | str | None = None) -> ssl.SSLContext:
        context = made(*args, cafile=cafile or loose.ca)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    monkeypatch.setattr(ssl, "_create_default_https_context", strict)


@pytest.mark.parametrize("version", ["0-9-1", "0-10"])
def test_the_client(loose: Certificates, port: int, version: str) -> None:
    async def open_it() -> None:
        async with connect(f"amqps://localhost:{port}?cacertfile={loose.ca}&version={version}"):
            pass

    with pytest.raises(ConnectFailed, match=f"the broker's {SAID}"):
        asyncio.run(open_it())


def test_a_bench(loose: Certificates, port: int) -> None:
    from headrace.bench.load.link import BenchError, open_link

    with pytest.raises(BenchError, match=SAID):
        open_link(parse_url(f"amqps://localhost:{port}?cacertfile={loose.ca}"))


def test_a_check_of_conformance(loose: Certificates, port: int) -> None:
    from headrace.conformance.run import request_product

    settings = parse_url(f"amqps://localhost:{port}?cacertfile={loose.ca}")
    with pytest.raises(ssl.SSLCertVerificationError, match=SAID):
        request_product(settings, V0_9_1)


def test_a_missing_file_leaves_no_socket_open(port: int) -> None:
    """An open one would fail this test or the next; see support.left_open."""
    from headrace.bench.load.link import BenchError, open_link
    from headrace.conformance.run import request_product

    settings = parse_url(f"amqps://localhost:{port}?cacertfile=missing.pem")
    with pytest.raises(BenchError, match="No such file"):
        open_link(settings)
    with pytest.raises(FileNotFoundError):
        request_product(settings, V0_9_1)


def test_keys_of_tokens(loose: Certificates, port: int) -> None:
    async def load() -> bytes:
        return await make_loader(f"https://localhost:{port}/keys", loose.ca)()

    with pytest.raises(ssl.SSLCertVerificationError, match=f"localhost is refused.*{SAID[-40:]}"):
        asyncio.run(load())


def test_the_console_as_a_client_of_oauth(loose: Certificates, port: int) -> None:
    client = OAuthClient(
        client_id="console",
        authorization_endpoint="https://localhost/",
        token_endpoint=f"https://localhost:{port}/token",
        authorities=loose.ca,
    )
    with pytest.raises(AuthorizationError, match=f"does not answer: its {SAID}"):
        asyncio.run(asyncio.wait_for(request_token(client, {}), PATIENCE_S))


def test_a_schema_registry(port: int) -> None:
    moments = iter(range(0, 1000, 20))
    registry = Registry(
        RegistryAddress(f"https://localhost:{port}"),
        lambda _: None,
        lambda: next(moments),
    )
    with pytest.raises(RegistryError, match=f"cannot be asked: its {SAID}"):
        registry.fetch_schema(7)


def test_another_fault_is_said_as_openssl_does() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = 10, "certificate has expired"
    assert (
        certificate_faults.fault_text(error) == "CERTIFICATE_VERIFY_FAILED, certificate has expired"
    )
    assert certificate_faults.find_refusal(OSError("no route")) is None
