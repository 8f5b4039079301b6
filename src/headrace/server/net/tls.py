# SPDX-License-Identifier: Apache-2.0
"""TLS of the listening side: certificates by server name, clients' certificates, revocation.

`headrace.server.net.revocation` closes open connections whose certificate is no longer valid.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings

NAMES_MAX = 256  # Certificates by server name.


class TlsError(Exception):
    """A certificate, key or list is unusable; the text names it and the reason."""


class NamedCertificate(NamedTuple):
    """A certificate for a server name, such as ``broker.example.org`` or ``*.example.org``."""

    name: str
    chain: Path
    key: Path


def read_server_names(text: str) -> list[NamedCertificate]:
    """Parse the setting ``tls_server_names``: ``name=chain.pem,key.pem name=…``.

    Raises:
        TlsError: the text is malformed.
    """
    certificates = []
    for part in text.split():
        name, equals, files = part.partition("=")
        chain, comma, key = files.partition(",")
        if not (equals and comma and name and chain and key):
            raise TlsError(f"tls_server_names: {part!r} is not name=chain.pem,key.pem")
        certificates.append(NamedCertificate(name.lower().rstrip("."), Path(chain), Path(key)))
    if len(certificates) > NAMES_MAX:
        raise TlsError(f"tls_server_names: more than {NAMES_MAX} names")
    return certificates


def make_context(settings: Settings) -> ssl.SSLContext:
    """Read all TLS files, and return the context of new connections.

    Every call makes a new context, so that a client cannot resume a session that it began before
    its certificate was revoked.

    Raises:
        TlsError: a file cannot be read, or a key does not belong to its certificate.
    """
    assert settings.tls_cert is not None
    assert settings.tls_key is not None
    names = read_server_names(settings.tls_server_names)
    default = _load_context(settings, settings.tls_cert, settings.tls_key)
    contexts = {
        certificate.name: _load_context(settings, certificate.chain, certificate.key)
        for certificate in names
    }
    if contexts:

        def choose_context(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            connection.context = find_context(contexts, name) or default

        default.sni_callback = choose_context
    return default


def find_context(contexts: dict[str, ssl.SSLContext], name: str | None) -> ssl.SSLContext | None:
    """Return the context for a server name: its own, or that of ``*`` for its first label.

    Return None if neither exists.
    """
    if name is None:
        return None
    name = name.lower().rstrip(".")
    return contexts.get(name) or contexts.get("*." + name.partition(".")[2])


def _load_context(settings: Settings, chain: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        context.load_cert_chain(chain, key, password=_no_passphrase)
        if settings.tls_ca is not None:
            context.load_verify_locations(settings.tls_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        if settings.tls_crl is not None:
            context.load_verify_locations(settings.tls_crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    except (OSError, ValueError) as error:  # OpenSSL raises OSError, too.
        reason = getattr(error, "strerror", None) or str(error)
        files = (("tls_cert", chain), ("tls_key", key), ("tls_ca", settings.tls_ca))
        named = [f"{name} {path}" for name, path in (*files, ("tls_crl", settings.tls_crl)) if path]
        raise TlsError(f"cannot use {', '.join(named[:-1])} or {named[-1]}: {reason}") from error
    return context


def _no_passphrase() -> str:
    """Refuse an encrypted key: OpenSSL would ask for the passphrase on the terminal."""
    raise ValueError("the key is encrypted")
