# SPDX-License-Identifier: Apache-2.0
"""EXTERNAL (RFC 4422): the client's certificate, verified by TLS, names the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.sasl.mechanism import MechanismServices, decode_name
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer

if TYPE_CHECKING:
    from headrace.gateway.security.remote_peer import Certificate, Names
    from headrace.gateway.security.user import User

# Keywords of RFC 4514 by the names that OpenSSL gives to types of attributes.
KEYWORDS = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
SAN_TYPES = {"dns": "DNS", "email": "email", "ip": "IP Address", "uri": "URI"}
NO_NAME = (b"", b"None", b"\0*\0*")  # Sent by clients without a name: Qpid's for Python, and Go's.
SPECIAL = frozenset(',+"\\<>;=')


class External:
    """The mechanism EXTERNAL and every login by it."""

    name = "EXTERNAL"
    clear = False

    def __init__(self, services: MechanismServices, peer: RemotePeer | None = None) -> None:
        self._services = services
        self._peer = peer or RemotePeer()

    def offered(self, peer: RemotePeer) -> bool:
        return peer.encrypted and bool(peer.certificate)

    def begin(self, peer: RemotePeer) -> External:
        return External(self._services, peer)

    async def step(self, response: bytes) -> bytes | User:
        certificate = self._peer.certificate
        if not certificate or not self._peer.encrypted:
            raise LoginRefused("EXTERNAL without a verified certificate")
        services = self._services
        name = certificate_name(certificate, services.certificate_name, services.certificate_san)
        if response not in NO_NAME and decode_name(response, "the authorization identity") != name:
            raise LoginRefused(f"EXTERNAL asks to act as another user than {name!r}")
        return services.access.admit(name, self._peer)


def certificate_name(certificate: Certificate, source: str, san: str = "dns") -> str:
    """Return the name in a certificate: exactly one, without control characters.

    ``source`` is ``common_name``, ``distinguished_name`` or ``subject_alternative_name``; of the
    last, ``san`` is the type: ``dns``, ``email``, ``ip`` or ``uri``.

    Raises:
        LoginRefused: the certificate has none, or several.
    """
    subject = certificate.get("subject", ())
    if source == "distinguished_name":
        candidates = [distinguished_name(subject)] if subject else []
    elif source == "common_name":
        candidates = [value for part in subject for name, value in part if name == "commonName"]
    else:
        names = certificate.get("subjectAltName", ())
        candidates = [value for name_type, value in names if name_type == SAN_TYPES[san]]
    if len(candidates) != 1 or not candidates[0]:
        raise LoginRefused(
            f"the certificate has {len(candidates)} names of the kind '{source}', not one"
        )
    name: str = candidates[0]
    if not name.isprintable() or len(name.encode()) > 255:
        raise LoginRefused("the name in the certificate is not a user's name")
    return name


def distinguished_name(subject: Names) -> str:
    """Return a subject in the form of RFC 4514, ``CN=ada,O=Example``, most specific part first."""
    return ",".join(
        "+".join(f"{KEYWORDS.get(name, name)}={escape(value)}" for name, value in part)
        for part in reversed(subject)
    )


def escape(value: str) -> str:
    """Escape a value for a distinguished name."""
    text = "".join("\\" + c if c in SPECIAL else c for c in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if len(text) > 1 and text.endswith(" "):
        text = text[:-1] + "\\ "
    return text
