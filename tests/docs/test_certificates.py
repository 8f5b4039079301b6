# SPDX-License-Identifier: Apache-2.0
"""Certificates by the manual, and those of the tests, are good for strict verification."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
import trustme

from support.certificates_and_tokens import Certificates
from support.tutorial import blocks_of

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "security.md"
STRICT = ssl.VERIFY_X509_STRICT  # Set by default since Python 3.13.


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Shake hands in memory, each side verifying strictly, to the client's Finished."""
    for context in (server, client):
        context.verify_flags |= STRICT
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)


def serving(chain: Path, key: Path | None = None, clients: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_the_manual_makes_good_certificates(tmp_path: Path) -> None:
    """The commands run as they are written; broker and client verify each other."""
    blocks = {block.title: block for block in blocks_of(PAGE) if block.title}
    (tmp_path / "tls.cnf").write_text(blocks["tls.cnf"].text)
    subprocess.run(
        ["bash", "-e", "-c", blocks["certificates"].text],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    ca = tmp_path / "ca.pem"
    client = ssl.create_default_context(cafile=ca)
    client.load_cert_chain(tmp_path / "ada.pem", tmp_path / "ada.key")
    shake(serving(tmp_path / "chain.pem", tmp_path / "key.pem", ca), client, "broker.example.org")


def test_certificates_of_the_tests_are_good(tmp_path: Path) -> None:
    root = Certificates(tmp_path)
    (tmp_path / "lesser").mkdir()
    lesser = Certificates(tmp_path / "lesser", root)
    cert, key, _ = lesser.issue("localhost", "localhost")
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + lesser.ca.read_bytes())
    client = ssl.create_default_context(cafile=root.ca)
    client.load_cert_chain(both, key)
    shake(serving(both, key, root.ca), client, "localhost")
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    shake(server, client, "localhost")


def test_older_certificates_are_not(tmp_path: Path) -> None:
    loose = Certificates(tmp_path, strict=False)
    cert, key, _ = loose.issue("localhost", "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="Missing Authority Key Identifier"):
        shake(serving(cert, key), ssl.create_default_context(cafile=loose.ca), "localhost")
