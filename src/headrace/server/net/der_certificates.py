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

AUTHORITIES_SIZE_MAX = 16 << 20  # Bytes of a file of authorities.
LIST_SIZE_MAX = 256 << 20  # Bytes of a file of revocation lists.
NAME_PARTS_MAX = 64  # The maximum parts of an issuer's name.

SEQUENCE, INTEGER = 0x30, 0x02
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
CENTURY = 50  # The years of a UTCTime below this are after 2000.
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
    """A file is not valid DER, or has no element of the kind that is read."""


class CertificateId(NamedTuple):
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


def read_element(data: bytes, offset: int, limit: int) -> Element:
    """Read the head of the element at ``offset``, which ends at ``limit`` or before.

    Raises:
        DerError: the head is malformed, or cut off.
    """
    if offset + 2 > limit:
        raise DerError("an element is cut off")
    length = data[offset + 1]
    begin = offset + 2
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4 or begin + size > limit:
            raise DerError("an element has no length")
        length = int.from_bytes(data[begin : begin + size], "big")
        begin += size
    if begin + length > limit:
        raise DerError("an element is longer than its container")
    return Element(data[offset], begin, begin + length)


def elements_of(data: bytes, container: Element) -> Iterator[Element]:
    """Yield the elements in an element.

    Raises:
        DerError: its content is malformed.
    """
    offset = container.begin
    while offset < container.end:
        element = read_element(data, offset, container.end)
        yield element
        offset = element.end


def expect(data: bytes, offset: int, limit: int, tag: int) -> Element:
    """Read the head of an element with a tag.

    Raises:
        DerError: its tag is another.
    """
    element = read_element(data, offset, limit)
    if element.tag != tag:
        raise DerError(f"an element with the tag {element.tag:#x} in place of {tag:#x}")
    return element


def name_of(data: bytes, element: Element) -> Name:
    """Read a distinguished name; names that RFC 5280 takes for the same are equal.

    Raises:
        DerError: the DER is malformed.
    """
    parts: list[tuple[bytes, str | bytes]] = []
    for group in elements_of(data, element):
        pairs = []
        for pair in elements_of(data, group):
            kind = read_element(data, pair.begin, pair.end)
            value = read_element(data, kind.end, pair.end)
            pairs.append((data[kind.begin : kind.end], text_of(data, value)))
        parts += sorted(pairs, key=lambda pair: pair[0])
        if len(parts) > NAME_PARTS_MAX:
            raise DerError(f"a name has more than {NAME_PARTS_MAX} parts")
    return tuple(parts)


def text_of(data: bytes, value: Element) -> str | bytes:
    """Return a normalised text, without case and repeated spaces; other values unchanged."""
    content = data[value.begin : value.end]
    encoding = ENCODINGS.get(value.tag)
    if encoding is None:
        return content
    try:
        return " ".join(content.decode(encoding).casefold().split())
    except UnicodeDecodeError:
        return content


def parse_id(certificate: bytes) -> CertificateId:
    """Read issuer and serial number of a certificate in DER.

    Raises:
        DerError: the DER is malformed.
    """
    serial, issuer, _, _ = _parts(certificate)
    number = int.from_bytes(certificate[serial.begin : serial.end], "big", signed=True)
    return CertificateId(name_of(certificate, issuer), number)


def expiry_of(certificate: bytes) -> datetime:
    """Return the end of the validity of a certificate in DER.

    Raises:
        DerError: the DER is malformed.
    """
    _, _, validity, _ = _parts(certificate)
    begin = read_element(certificate, validity.begin, validity.end)
    end = read_element(certificate, begin.end, validity.end)
    text = certificate[end.begin : end.end].decode("ascii", "replace")
    try:
        if end.tag == UTC_TIME:
            text = ("20" if int(text[:2]) < CENTURY else "19") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise DerError(f"a certificate is valid until {text!r}, which is not a time") from None


def parse_authority(certificate: bytes) -> Authority:
    """Read subject and public key of a certificate in DER.

    Raises:
        DerError: the DER is malformed.
    """
    _, _, validity, end = _parts(certificate)
    subject = expect(certificate, validity.end, end, SEQUENCE)
    key = expect(certificate, subject.end, end, SEQUENCE)
    return Authority(name_of(certificate, subject), certificate[key.begin : key.end])


def _parts(certificate: bytes) -> tuple[Element, Element, Element, int]:
    """Return serial number, issuer and validity of a certificate, and the end of its signed part.

    Raises:
        DerError: the DER is malformed.
    """
    outer = expect(certificate, 0, len(certificate), SEQUENCE)
    inner = expect(certificate, outer.begin, outer.end, SEQUENCE)
    offset = inner.begin
    first = read_element(certificate, offset, inner.end)
    if first.tag == VERSION:
        offset = first.end
    serial = expect(certificate, offset, inner.end, INTEGER)
    algorithm = expect(certificate, serial.end, inner.end, SEQUENCE)
    issuer = expect(certificate, algorithm.end, inner.end, SEQUENCE)
    validity = expect(certificate, issuer.end, inner.end, SEQUENCE)
    return serial, issuer, validity, inner.end


def parse_authorities(file: bytes) -> set[Authority]:
    """Return the authorities of a file (PEM).

    Raises:
        DerError: the file has none, or something malformed.
    """
    names = set()
    for _, block in _CERTIFICATE.findall(file):
        try:
            data = base64.b64decode(b"".join(block.split()), validate=True)
        except binascii.Error as error:
            raise DerError(f"a certificate is not valid base64: {error}") from None
        first = read_element(data, 0, len(data))
        names.add(parse_authority(data[: first.end]))  # OpenSSL's own format adds fields.
    if not names:
        raise DerError("the file has no certificate")
    return names


class Chain(NamedTuple):
    """The certificate chain of a client."""

    verified: list[bytes]  # Its own certificate first, in DER.
    sent: list[bytes]  # The chain in the order of the client.

    def ids(self) -> list[CertificateId]:
        """Return the identities of its certificates.

        Raises:
            DerError: a certificate is malformed.
        """
        return [parse_id(each) for each in self.verified]

    def is_vouched(self, trusted: Collection[Authority]) -> bool:
        """Return True if all its authorities are trusted, or were sent by the client.

        The last one must be trusted, because a client can send any certificate.

        Raises:
            DerError: a certificate is malformed.
        """
        last = parse_authority(self.verified[-1])
        issuer = parse_id(self.verified[-1]).issuer
        if issuer != last.subject:  # An older Python: compare names.
            return any(each.subject == issuer for each in trusted)
        between = [parse_authority(each) for each in self.verified[1:-1]]
        sent = {parse_authority(each) for each in self.sent}
        return last in trusted and all(each in trusted or each in sent for each in between)


def find_revoked(lists: bytes, certificates: Collection[CertificateId]) -> set[CertificateId]:
    """Return the certificates that one of the lists (PEM) revokes.

    Raises:
        DerError: the file has no list, or something malformed.
    """
    revoked: set[CertificateId] = set()
    blocks = _PEM.findall(lists)
    if not blocks:
        raise DerError("the file has no revocation list")
    by_issuer: dict[Name, set[int]] = {}
    for each in certificates:
        by_issuer.setdefault(each.issuer, set()).add(each.serial)
    for block in blocks:
        try:
            data = base64.b64decode(b"".join(block.split()), validate=True)
        except binascii.Error as error:
            raise DerError(f"a revocation list is not valid base64: {error}") from None
        revoked |= _revoked_by(data, by_issuer)
    return revoked


def _revoked_by(crl: bytes, by_issuer: dict[Name, set[int]]) -> set[CertificateId]:
    """Return the certificates of its issuer that a list revokes."""
    outer = expect(crl, 0, len(crl), SEQUENCE)
    inner = expect(crl, outer.begin, outer.end, SEQUENCE)
    offset = inner.begin
    first = read_element(crl, offset, inner.end)
    if first.tag == INTEGER:  # The version.
        offset = first.end
    algorithm = expect(crl, offset, inner.end, SEQUENCE)
    issuer = expect(crl, algorithm.end, inner.end, SEQUENCE)
    name = name_of(crl, issuer)
    serials = by_issuer.get(name)
    if not serials:
        return set()
    offset = issuer.end
    while offset < inner.end:
        element = read_element(crl, offset, inner.end)
        if element.tag == SEQUENCE:
            return {CertificateId(name, each) for each in serials & _serials(crl, element)}
        if element.tag not in (UTC_TIME, GENERALIZED_TIME):
            break  # Extensions: nothing is revoked.
        offset = element.end
    return set()


def _serials(data: bytes, entries: Element) -> set[int]:
    """Return the serial numbers in the entries of a list."""
    serials = set()
    for entry in elements_of(data, entries):
        serial = expect(data, entry.begin, entry.end, INTEGER)
        serials.add(int.from_bytes(data[serial.begin : serial.end], "big", signed=True))
    return serials


def chain_of(ssl_object: SSLObject | SSLSocket) -> Chain:
    """Return the verified chain of a client; with some Pythons its own certificate alone."""
    own = ssl_object.getpeercert(True)
    if not own:
        return Chain([], [])
    return Chain(
        _chain(ssl_object, "get_verified_chain"), _chain(ssl_object, "get_unverified_chain")
    )


def _chain(ssl_object: SSLObject | SSLSocket, getter: str) -> list[bytes]:
    own = ssl_object.getpeercert(True)
    if hasattr(ssl_object, getter):  # Python 3.13.
        return list(getattr(ssl_object, getter)())
    inner: object = getattr(ssl_object, "_sslobj", None)
    if not hasattr(inner, getter):
        return [own] if own else []
    return [each.public_bytes(_DER) for each in getattr(inner, getter)()]
