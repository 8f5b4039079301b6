# SPDX-License-Identifier: Apache-2.0
"""DER parsing for revocation lists, the authorities of a chain, and when certificates expire.

OpenSSL verifies certificates and lists at the handshake, and cannot check an open connection again.
So this module reads issuer and serial number of verified certificates and of a loaded list (RFC
5280: a serial number is unique within its issuer), and subject and key of the chain's authorities,
which a renewed certificate keeps.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ssl import SSLObject, SSLSocket

AUTHORITIES_OCTETS_MAX = 16 << 20  # Of a file of authorities.
LIST_OCTETS_MAX = 256 << 20  # Of a file of revocation lists.
NAME_PARTS_MAX = 64  # Of an issuer.

SEQUENCE, INTEGER = 0x30, 0x02
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
CENTURY = 50  # Of a UTCTime: years below are after 2000.
VERSION = 0xA0
ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1E: "utf-16-be"}
_PEM = re.compile(rb"-----BEGIN (?:X509 )?CRL-----(.*?)-----END (?:X509 )?CRL-----", re.DOTALL)
_CERTIFICATE = re.compile(
    rb"-----BEGIN (?P<kind>(?:X509 |TRUSTED )?CERTIFICATE)-----(.*?)-----END (?P=kind)-----",
    re.DOTALL,
)
_DER = 2  # `_ssl`'s constant for DER.

Name = tuple[tuple[bytes, str | bytes], ...]


class DerError(ValueError):
    """Malformed DER."""


class Issued(NamedTuple):
    """A certificate's identity: issuer and serial number."""

    issuer: Name
    serial: int


class Authority(NamedTuple):
    """An authority's identity: subject and key."""

    subject: Name
    key: bytes


class Element(NamedTuple):
    """One element: its tag, where its content begins, and where it ends."""

    tag: int
    begin: int
    end: int


def element(octets: bytes, at: int, within: int) -> Element:
    """Read the head of an element at ``at``, which ends before ``within``.

    Raises:
        DerError: it is malformed, or cut off.
    """
    if at + 2 > within:
        raise DerError("an element is cut off")
    length = octets[at + 1]
    begin = at + 2
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4 or begin + size > within:
            raise DerError("an element has no length")
        length = int.from_bytes(octets[begin : begin + size], "big")
        begin += size
    if begin + length > within:
        raise DerError("an element is longer than its container")
    return Element(octets[at], begin, begin + length)


def elements(octets: bytes, of: Element) -> Iterator[Element]:
    """Yield the elements in an element.

    Raises:
        DerError: it holds something else.
    """
    at = of.begin
    while at < of.end:
        member = element(octets, at, of.end)
        yield member
        at = member.end


def expect(octets: bytes, at: int, within: int, tag: int) -> Element:
    """Read the head of an element with a tag.

    Raises:
        DerError: there is another.
    """
    member = element(octets, at, within)
    if member.tag != tag:
        raise DerError(f"an element with the tag {member.tag:#x} in place of {tag:#x}")
    return member


def name_of(octets: bytes, of: Element) -> Name:
    """Read a distinguished name so that those that mean the same are equal.

    Raises:
        DerError: it is malformed.
    """
    parts: list[tuple[bytes, str | bytes]] = []
    for group in elements(octets, of):
        pairs = []
        for pair in elements(octets, group):
            kind = element(octets, pair.begin, pair.end)
            value = element(octets, kind.end, pair.end)
            pairs.append((octets[kind.begin : kind.end], text_of(octets, value)))
        parts += sorted(pairs, key=lambda pair: pair[0])
        if len(parts) > NAME_PARTS_MAX:
            raise DerError(f"a name has more than {NAME_PARTS_MAX} parts")
    return tuple(parts)


def text_of(octets: bytes, value: Element) -> str | bytes:
    """Return a normalised text, without case and repeated spaces; other values unchanged."""
    content = octets[value.begin : value.end]
    encoding = ENCODINGS.get(value.tag)
    if encoding is None:
        return content
    try:
        return " ".join(content.decode(encoding).casefold().split())
    except UnicodeDecodeError:
        return content


def issued(certificate: bytes) -> Issued:
    """Read issuer and serial number of a certificate in DER.

    Raises:
        DerError: it is malformed.
    """
    serial, issuer, _, _ = _parts(certificate)
    number = int.from_bytes(certificate[serial.begin : serial.end], "big", signed=True)
    return Issued(name_of(certificate, issuer), number)


def expires(certificate: bytes) -> datetime:
    """Return the end of the validity of a certificate in DER.

    Raises:
        DerError: it is malformed.
    """
    _, _, validity, _ = _parts(certificate)
    begin = element(certificate, validity.begin, validity.end)
    end = element(certificate, begin.end, validity.end)
    text = certificate[end.begin : end.end].decode("ascii", "replace")
    try:
        if end.tag == UTC_TIME:
            text = ("20" if int(text[:2]) < CENTURY else "19") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise DerError(f"a certificate is valid until {text!r}, which is not a time") from None


def authority(certificate: bytes) -> Authority:
    """Read subject and public key of a certificate in DER.

    Raises:
        DerError: it is malformed.
    """
    _, _, validity, end = _parts(certificate)
    subject = expect(certificate, validity.end, end, SEQUENCE)
    key = expect(certificate, subject.end, end, SEQUENCE)
    return Authority(name_of(certificate, subject), certificate[key.begin : key.end])


def _parts(certificate: bytes) -> tuple[Element, Element, Element, int]:
    """Return serial number, issuer and validity of a certificate, and the end of its signed part.

    Raises:
        DerError: it is malformed.
    """
    whole = expect(certificate, 0, len(certificate), SEQUENCE)
    inner = expect(certificate, whole.begin, whole.end, SEQUENCE)
    at = inner.begin
    first = element(certificate, at, inner.end)
    if first.tag == VERSION:
        at = first.end
    serial = expect(certificate, at, inner.end, INTEGER)
    algorithm = expect(certificate, serial.end, inner.end, SEQUENCE)
    issuer = expect(certificate, algorithm.end, inner.end, SEQUENCE)
    validity = expect(certificate, issuer.end, inner.end, SEQUENCE)
    return serial, issuer, validity, inner.end


def authorities(file: bytes) -> set[Authority]:
    """Return the authorities of a file (PEM).

    Raises:
        DerError: the file has none, or something malformed.
    """
    names = set()
    for _, block in _CERTIFICATE.findall(file):
        try:
            octets = base64.b64decode(b"".join(block.split()), validate=True)
        except binascii.Error as error:
            raise DerError(f"a certificate is not valid base64: {error}") from None
        first = element(octets, 0, len(octets))
        names.add(authority(octets[: first.end]))  # OpenSSL's own kind has more behind it.
    if not names:
        raise DerError("there is no certificate")
    return names


class Chain(NamedTuple):
    """The certificate chain of a client."""

    verified: list[bytes]  # Its own certificate first, in DER.
    sent: list[bytes]  # As the client sent it.

    def issued(self) -> list[Issued]:
        """Return the identities of its certificates.

        Raises:
            DerError: a certificate is malformed.
        """
        return [issued(each) for each in self.verified]

    def is_vouched(self, trusted: Collection[Authority]) -> bool:
        """Return True if all its authorities are trusted, or sent by the client.

        The last one must be trusted, for clients can send anything.

        Raises:
            DerError: a certificate is malformed.
        """
        last = authority(self.verified[-1])
        issuer = issued(self.verified[-1]).issuer
        if issuer != last.subject:  # An older Python: compare names.
            return any(each.subject == issuer for each in trusted)
        between = [authority(each) for each in self.verified[1:-1]]
        shown = {authority(each) for each in self.sent}
        return last in trusted and all(each in trusted or each in shown for each in between)


def revoked(lists: bytes, wanted: Collection[Issued]) -> set[Issued]:
    """Return which of the certificates one of the lists (PEM) names.

    Raises:
        DerError: the file has no list, or something malformed.
    """
    certificates: set[Issued] = set()
    blocks = _PEM.findall(lists)
    if not blocks:
        raise DerError("there is no revocation list")
    by_issuer: dict[Name, set[int]] = {}
    for each in wanted:
        by_issuer.setdefault(each.issuer, set()).add(each.serial)
    for block in blocks:
        try:
            octets = base64.b64decode(b"".join(block.split()), validate=True)
        except binascii.Error as error:
            raise DerError(f"a revocation list is not valid base64: {error}") from None
        certificates |= _named(octets, by_issuer)
    return certificates


def _named(octets: bytes, by_issuer: dict[Name, set[int]]) -> set[Issued]:
    """Return which serial numbers a list names, of those of its issuer."""
    whole = expect(octets, 0, len(octets), SEQUENCE)
    inner = expect(octets, whole.begin, whole.end, SEQUENCE)
    at = inner.begin
    first = element(octets, at, inner.end)
    if first.tag == INTEGER:  # The version.
        at = first.end
    algorithm = expect(octets, at, inner.end, SEQUENCE)
    issuer = expect(octets, algorithm.end, inner.end, SEQUENCE)
    name = name_of(octets, issuer)
    serials = by_issuer.get(name)
    if not serials:
        return set()
    at = issuer.end
    while at < inner.end:
        part = element(octets, at, inner.end)
        if part.tag == SEQUENCE:
            return {Issued(name, each) for each in serials & _serials(octets, part)}
        if part.tag not in (UTC_TIME, GENERALIZED_TIME):
            break  # Extensions: nothing is revoked.
        at = part.end
    return set()


def _serials(octets: bytes, of: Element) -> set[int]:
    """The serial numbers in the entries of a list."""
    serials = set()
    for entry in elements(octets, of):
        serial = expect(octets, entry.begin, entry.end, INTEGER)
        serials.add(int.from_bytes(octets[serial.begin : serial.end], "big", signed=True))
    return serials


def chain_of(ssl_object: SSLObject | SSLSocket) -> Chain:
    """Return the verified chain of a client; with some Pythons its own certificate alone."""
    own = ssl_object.getpeercert(True)
    if not own:
        return Chain([], [])
    return Chain(
        _chain(ssl_object, "get_verified_chain"), _chain(ssl_object, "get_unverified_chain")
    )


def _chain(ssl_object: SSLObject | SSLSocket, which: str) -> list[bytes]:
    own = ssl_object.getpeercert(True)
    if hasattr(ssl_object, which):  # Python 3.13.
        return list(getattr(ssl_object, which)())
    inner: object = getattr(ssl_object, "_sslobj", None)
    if not hasattr(inner, which):
        return [own] if own else []
    return [each.public_bytes(_DER) for each in getattr(inner, which)()]
