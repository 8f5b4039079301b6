# SPDX-License-Identifier: Apache-2.0
"""DER parsing: certificates, their chains and expiry, and revocation lists.

OpenSSL verifies certificates and lists at the handshake, and cannot check an open connection again.
To do that, this module reads the issuer and serial number of verified certificates and of a loaded
list (RFC 5280: a serial number is unique within its issuer), and the subject and key of the chain's
authorities, which stay the same when an authority's certificate is renewed.
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
NAME_PARTS_MAX = 64  # Parts of an issuer's name.

SEQUENCE, INTEGER = 0x30, 0x02
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
CENTURY = 50  # Two-digit years of a UTCTime below this are in the 2000s, others in the 1900s.
VERSION = 0xA0  # The tag of a certificate's optional version field.
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
    """The head of a DER element; offsets count from the start of the data."""

    tag: int
    begin: int  # The offset of the content.
    end: int  # The offset after the content.


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
            raise DerError("the length of an element is malformed or too long")
        length = int.from_bytes(data[begin : begin + size], "big")
        begin += size
    if begin + length > limit:
        raise DerError("an element is longer than its container")
    return Element(data[offset], begin, begin + length)


def iterate_elements(data: bytes, container: Element) -> Iterator[Element]:
    """Yield the elements that a container holds, without those inside them.

    Raises:
        DerError: the content is malformed.
    """
    offset = container.begin
    while offset < container.end:
        element = read_element(data, offset, container.end)
        yield element
        offset = element.end


def expect(data: bytes, offset: int, limit: int, tag: int) -> Element:
    """Read the head of an element, which must have the tag ``tag``.

    Raises:
        DerError: the element has another tag, or its head is malformed.
    """
    element = read_element(data, offset, limit)
    if element.tag != tag:
        raise DerError(f"an element with the tag {element.tag:#x} in place of {tag:#x}")
    return element


def read_distinguished_name(data: bytes, element: Element) -> Name:
    """Read a distinguished name in normal form: names that RFC 5280 matches compare equal.

    Raises:
        DerError: the DER is malformed.
    """
    parts: list[tuple[bytes, str | bytes]] = []
    for group in iterate_elements(data, element):
        pairs = []
        for pair in iterate_elements(data, group):
            kind = read_element(data, pair.begin, pair.end)
            value = read_element(data, kind.end, pair.end)
            pairs.append((data[kind.begin : kind.end], normalize_value(data, value)))
        parts += sorted(pairs, key=lambda pair: pair[0])
        if len(parts) > NAME_PARTS_MAX:
            raise DerError(f"a name has more than {NAME_PARTS_MAX} parts")
    return tuple(parts)


def normalize_value(data: bytes, value: Element) -> str | bytes:
    """Return a string without case and repeated spaces; any other value as its bytes."""
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
    serial, issuer, _, _ = _read_fields(certificate)
    number = int.from_bytes(certificate[serial.begin : serial.end], "big", signed=True)
    return CertificateId(read_distinguished_name(certificate, issuer), number)


def parse_expiry(certificate: bytes) -> datetime:
    """Return the time at which a certificate in DER expires.

    Raises:
        DerError: the DER is malformed.
    """
    _, _, validity, _ = _read_fields(certificate)
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
    _, _, validity, end = _read_fields(certificate)
    subject = expect(certificate, validity.end, end, SEQUENCE)
    key = expect(certificate, subject.end, end, SEQUENCE)
    return Authority(
        read_distinguished_name(certificate, subject), certificate[key.begin : key.end]
    )


def _read_fields(certificate: bytes) -> tuple[Element, Element, Element, int]:
    """Return serial number, issuer and validity of a certificate, and the end of its signed part.

    Raises:
        DerError: the DER is malformed.
    """
    outer = expect(certificate, 0, len(certificate), SEQUENCE)
    signed = expect(certificate, outer.begin, outer.end, SEQUENCE)
    offset = signed.begin
    first = read_element(certificate, offset, signed.end)
    if first.tag == VERSION:
        offset = first.end
    serial = expect(certificate, offset, signed.end, INTEGER)
    algorithm = expect(certificate, serial.end, signed.end, SEQUENCE)
    issuer = expect(certificate, algorithm.end, signed.end, SEQUENCE)
    validity = expect(certificate, issuer.end, signed.end, SEQUENCE)
    return serial, issuer, validity, signed.end


def parse_authorities(file: bytes) -> set[Authority]:
    """Return the authorities of a file in PEM.

    Raises:
        DerError: the file has no certificate, or one is malformed.
    """
    authorities = set()
    for _, block in _CERTIFICATE.findall(file):
        try:
            data = base64.b64decode(b"".join(block.split()), validate=True)
        except binascii.Error as error:
            raise DerError(f"a certificate is not valid base64: {error}") from None
        first = read_element(data, 0, len(data))
        # A TRUSTED CERTIFICATE, OpenSSL's own format, has fields after the certificate.
        authorities.add(parse_authority(data[: first.end]))
    if not authorities:
        raise DerError("the file has no certificate")
    return authorities


class Chain(NamedTuple):
    """The certificate chain of a client."""

    verified: list[bytes]  # Certificates in DER: the client's, then those of its authorities.
    sent: list[bytes]  # The certificates that the client sent, in its order.

    def ids(self) -> list[CertificateId]:
        """Return the identities of the verified certificates, the client's first.

        Raises:
            DerError: a certificate is malformed.
        """
        return [parse_id(certificate) for certificate in self.verified]

    def is_vouched(self, trusted: Collection[Authority]) -> bool:
        """Return True if every authority is in ``trusted`` or was sent by the client.

        The last one must be in ``trusted``, because a client can send any certificate.

        Raises:
            DerError: a certificate is malformed.
        """
        last = parse_authority(self.verified[-1])
        issuer = parse_id(self.verified[-1]).issuer
        if issuer != last.subject:  # An older Python has no chain, so only names are compared.
            return any(authority.subject == issuer for authority in trusted)
        between = [parse_authority(certificate) for certificate in self.verified[1:-1]]
        sent = {parse_authority(certificate) for certificate in self.sent}
        return last in trusted and all(
            authority in trusted or authority in sent for authority in between
        )


def find_revoked(lists: bytes, certificates: Collection[CertificateId]) -> set[CertificateId]:
    """Return the certificates that one of the lists in a file in PEM revokes.

    Raises:
        DerError: the file has no list, or one is malformed.
    """
    revoked: set[CertificateId] = set()
    blocks = _PEM.findall(lists)
    if not blocks:
        raise DerError("the file has no revocation list")
    by_issuer: dict[Name, set[int]] = {}
    for certificate in certificates:
        by_issuer.setdefault(certificate.issuer, set()).add(certificate.serial)
    for block in blocks:
        try:
            data = base64.b64decode(b"".join(block.split()), validate=True)
        except binascii.Error as error:
            raise DerError(f"a revocation list is not valid base64: {error}") from None
        revoked |= _find_revoked(data, by_issuer)
    return revoked


def _find_revoked(crl: bytes, by_issuer: dict[Name, set[int]]) -> set[CertificateId]:
    """Return the certificates, given as serial numbers by issuer, that one list revokes."""
    outer = expect(crl, 0, len(crl), SEQUENCE)
    signed = expect(crl, outer.begin, outer.end, SEQUENCE)
    offset = signed.begin
    first = read_element(crl, offset, signed.end)
    if first.tag == INTEGER:  # The version.
        offset = first.end
    algorithm = expect(crl, offset, signed.end, SEQUENCE)
    issuer = expect(crl, algorithm.end, signed.end, SEQUENCE)
    name = read_distinguished_name(crl, issuer)
    serials = by_issuer.get(name)
    if not serials:
        return set()
    offset = issuer.end
    while offset < signed.end:
        element = read_element(crl, offset, signed.end)
        if element.tag == SEQUENCE:
            revoked = serials & _read_serials(crl, element)
            return {CertificateId(name, serial) for serial in revoked}
        if element.tag not in (UTC_TIME, GENERALIZED_TIME):
            break  # Extensions follow at once, so the list has no entries.
        offset = element.end
    return set()


def _read_serials(data: bytes, entries: Element) -> set[int]:
    """Return the serial numbers in the entries of a list."""
    serials = set()
    for entry in iterate_elements(data, entries):
        serial = expect(data, entry.begin, entry.end, INTEGER)
        serials.add(int.from_bytes(data[serial.begin : serial.end], "big", signed=True))
    return serials


def read_chain(ssl_object: SSLObject | SSLSocket) -> Chain:
    """Return the chain of a client; empty if it sent no certificate.

    Pythons whose ``ssl`` does not expose chains return the client's certificate alone.
    """
    if not ssl_object.getpeercert(True):
        return Chain([], [])
    return Chain(
        _call_getter(ssl_object, "get_verified_chain"),
        _call_getter(ssl_object, "get_unverified_chain"),
    )


def _call_getter(ssl_object: SSLObject | SSLSocket, getter: str) -> list[bytes]:
    """Return the certificates, in DER, of one of the two chains."""
    own = ssl_object.getpeercert(True)
    if hasattr(ssl_object, getter):  # Python 3.13.
        return list(getattr(ssl_object, getter)())
    inner: object = getattr(ssl_object, "_sslobj", None)
    if not hasattr(inner, getter):
        return [own] if own else []
    return [certificate.public_bytes(_DER) for certificate in getattr(inner, getter)()]
