# SPDX-License-Identifier: Apache-2.0
"""SCRAM-SHA-256 (RFC 5802, RFC 7677): the messages and the arithmetic, for both sides, no I/O.

::

    client                                 server
    n,,n=user,r=C                    ->
                                     <-    r=CS,s=salt,i=iterations
    c=biws,r=CS,p=proof              ->
                                     <-    v=signature

The bytes on the wire reveal a password only to a search of all passwords; the server proves as well
that it knows the user. Without channel binding: "n", or "y" from a client that could.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from dataclasses import dataclass

ITERATIONS = 65536  # For new keys: some 20 ms for a client, and for each guess of a thief.
ITERATIONS_MIN = 4096  # RFC 7677.
ITERATIONS_MAX = 4_000_000  # The most that a client computes for a server: some seconds.
SALT_SIZE = 16
KEY_SIZE = 32
NONCE_SIZE = 18  # Octets of randomness, 24 characters.
NONCE_CHARACTERS_MAX = 256
NAME_CHARACTERS_MAX = 1024

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


class ScramError(ValueError):
    """A message is malformed, does not fit the one before, or has a wrong proof."""


def prepare(text: str) -> str:
    """SASLprep (RFC 4013), so that the same password typed otherwise is the same.

    Raises:
        ScramError: the text has characters that no password may have.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c)
    )
    text = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibited(c) for c in text for prohibited in _PROHIBITED):
        raise ScramError("a character that SASLprep does not allow")
    if any(map(stringprep.in_table_d1, text)) and (
        any(map(stringprep.in_table_d2, text))
        or not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1]))
    ):
        raise ScramError("text of both directions")
    return text


def salt_password(password: str, salt: bytes, iterations: int) -> bytes:
    """Return SaltedPassword of RFC 5802, by PBKDF2: the time grows with ``iterations``."""
    return hashlib.pbkdf2_hmac("sha256", prepare(password).encode(), salt, iterations)


def keys(salted_password: bytes) -> tuple[bytes, bytes]:
    """Return StoredKey and ServerKey, which a server keeps."""
    client_key = hmac.digest(salted_password, b"Client Key", "sha256")
    return (
        hashlib.sha256(client_key).digest(),
        hmac.digest(salted_password, b"Server Key", "sha256"),
    )


def attributes(message: bytes, names: str) -> dict[str, str]:
    """Parse ``a=…,b=…`` with exactly these attributes first, in order; extensions may follow.

    Raises:
        ScramError: the text has another form.
    """
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None
    fields: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if len(name) != 1 or not equals or name in fields:
            raise ScramError("malformed attributes")
        fields[name] = value
    if "".join(fields)[: len(names)] != names or "m" in fields:
        raise ScramError(f"the attributes {', '.join(fields)} are not {', '.join(names)}")
    return fields


def unbase64(text: str) -> bytes:
    """Decode base64.

    Raises:
        ScramError: the text is no base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("not base64") from None


def nonce() -> str:
    """Return a new random nonce, in base64."""
    return base64.b64encode(secrets.token_bytes(NONCE_SIZE)).decode()


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message."""

    header: str  # The GS2 header, "n,," or "y,,".
    authzid: str
    name: str
    nonce: str
    bare: bytes  # All after the header.


def read_client_first(message: bytes) -> ClientFirst:
    """Read the client's first message.

    Raises:
        ScramError: the message is malformed, or asks for channel binding.
    """
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None
    flag, _, rest = text.partition(",")
    authzid, comma, bare = rest.partition(",")
    if flag not in ("n", "y") or not comma or (authzid and not authzid.startswith("a=")):
        raise ScramError("channel binding is not served" if flag[:1] == "p" else "malformed header")
    fields = attributes(bare.encode(), "nr")
    if not fields["r"] or len(fields["r"]) > NONCE_CHARACTERS_MAX or not fields["r"].isprintable():
        raise ScramError("a nonce is missing or too long")
    return ClientFirst(
        f"{flag},{authzid},",
        unescape(authzid[2:]),
        unescape(fields["n"]),
        fields["r"],
        bare.encode(),
    )


def escape(name: str) -> str:
    """Return a name as an attribute's value."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(text: str) -> str:
    """Return the name in an attribute's value.

    Raises:
        ScramError: an escape is none of the standard's.
    """
    pieces = text.split("=")
    if len(text) > NAME_CHARACTERS_MAX or any(p[:2] not in ("2C", "3D") for p in pieces[1:]):
        raise ScramError("malformed name")
    return pieces[0] + "".join(
        ("," if piece[:2] == "2C" else "=") + piece[2:] for piece in pieces[1:]
    )


class Server:
    """The server's side of one login, after the client's first message."""

    def __init__(
        self,
        first: ClientFirst,
        *,
        salt: bytes,
        iterations: int,
        stored_key: bytes,
        server_key: bytes,
    ) -> None:
        self._first = first
        self._nonce = first.nonce + nonce()
        self._stored_key = stored_key
        self._server_key = server_key
        text = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        self.challenge = text.encode()  # The server's first message.

    def finish(self, message: bytes) -> bytes:
        """Check the client's last message; return the server's.

        Raises:
            ScramError: the message is malformed, or its proof is wrong.
        """
        without, _, proof_text = message.rpartition(b",p=")
        fields = attributes(without, "cr")
        proof = unbase64(proof_text.decode("ascii", "replace"))
        bound = unbase64(fields["c"]) == self._first.header.encode()
        fresh = hmac.compare_digest(fields["r"].encode(), self._nonce.encode())
        if not bound or not fresh or len(proof) != KEY_SIZE:
            raise ScramError("the last message does not follow from the first")
        text = b",".join((self._first.bare, self.challenge, without))
        mask = hmac.digest(self._stored_key, text, "sha256")
        client_key = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._stored_key):
            raise ScramError("the proof is wrong")
        signature = hmac.digest(self._server_key, text, "sha256")
        return b"v=" + base64.b64encode(signature)


class Client:
    """The client's side of one login."""

    def __init__(self, name: str, password: str) -> None:
        """Raises ScramError when SASLprep refuses the name or the password."""
        self._password = password
        self._nonce = nonce()
        self._bare = f"n={escape(prepare(name))},r={self._nonce}".encode()
        prepare(password)
        self.first = b"n,," + self._bare
        self._signature = b""
        self.done = False  # True once the server has proved that it has the keys.

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge: the proof, then nothing.

        Raises:
            ScramError: the server does not do what the standard says, or does not know us.
        """
        if self._signature:
            fields = attributes(challenge, "v")
            if not hmac.compare_digest(unbase64(fields["v"]), self._signature):
                raise ScramError("the server does not know the password either")
            self.done = True
            return b""
        fields = attributes(challenge, "rsi")
        salt, iterations = unbase64(fields["s"]), fields["i"]
        if not fields["r"].startswith(self._nonce) or fields["r"] == self._nonce:
            raise ScramError("the server's nonce does not follow from ours")
        if not iterations.isdecimal() or len(iterations) > 7 or not salt:
            raise ScramError("malformed challenge")
        if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise ScramError(f"{iterations} iterations are too few or too many")
        secret = salt_password(self._password, salt, int(iterations))
        stored_key, server_key = keys(secret)
        without = f"c=biws,r={fields['r']}".encode()
        text = b",".join((self._bare, challenge, without))
        client_key = hmac.digest(secret, b"Client Key", "sha256")
        mask = hmac.digest(stored_key, text, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
        self._signature = hmac.digest(server_key, text, "sha256")
        return without + b",p=" + base64.b64encode(proof)
