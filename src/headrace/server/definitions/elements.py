# SPDX-License-Identifier: Apache-2.0
"""The elements of definitions, each checked without regard to the others.

The error for a wrong field has its place in the file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import NamedTuple

from headrace.gateway.security.passwords import NO_PASSWORD
from headrace.model.exchange.binding import EXCHANGE, QUEUE
from headrace.model.policy.accounts import Account, AccountError, ScramKeys, check_name
from headrace.server.definitions.document import DocumentError, check_nested, json_type, member
from headrace.server.definitions.typed_arguments import ARGUMENTS, TYPED, typed_arguments

NAME_BYTES_MAX = 255
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 63) - 1  # Integers of field tables.
TYPED_BYTES_MAX = 256 << 10  # Bytes of the base64 of typed arguments.
TAGS_MAX = 64
QUEUE_TYPE, CLASSIC = "x-queue-type", "classic"
ARGON2ID = "headrace_argon2id"  # The algorithm of Headrace's hashes, which only Headrace reads.
ARGON2ID_PREFIX = "$argon2id$"
# The names of RabbitMQ's hashes here, and their bytes: four of salt, and a digest.
SHA256 = "rabbit_password_hashing_sha256"
FOREIGN_HASHES = {
    SHA256: ("rabbit_sha256", 4 + 32),
    "rabbit_password_hashing_sha512": ("rabbit_sha512", 4 + 64),
}
# Old files of RabbitMQ do not name the algorithm: it is MD5, or SHA-256 since 3.6.
MD5, MD5_SIZE = "rabbit_password_hashing_md5", 4 + 16
PASSWORD_BYTES_MAX = 65536  # Bytes of a password in a file; the hash function has a lower limit.
SCRAM_FIELD = "headrace_scram_sha_256"  # The SCRAM keys of a user with a Headrace hash.
SCRAM_BYTES_MAX = 64  # Bytes of a salt or a key.
SCRAM_ITERATIONS = range(4096, 1_000_001)


class Exchange(NamedTuple):
    """An exchange of a file."""

    path: str
    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, object]


class Queue(NamedTuple):
    """A queue of a file."""

    path: str
    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    arguments: dict[str, object]
    classic: bool = False  # True if the type is classic, given beside the arguments.

    def declare_arguments(self, default_type: str) -> dict[str, object]:
        """Return the arguments to declare the queue with, so that it gets its type.

        ``default_type`` is the type of queues whose arguments name none.
        """
        if self.classic and default_type != CLASSIC:
            return {**self.arguments, QUEUE_TYPE: CLASSIC}
        return self.arguments


class Binding(NamedTuple):
    """A binding of a file; ``kind`` is that of the destination."""

    path: str
    vhost: str
    source: str
    kind: str
    destination: str
    routing_key: str
    arguments: dict[str, object]


def as_object(value: object) -> object:
    """Return an object that Erlang has written as a list of names and values; others unchanged."""
    if not isinstance(value, list):
        return value
    names = [pair[0] for pair in value if isinstance(pair, list) and len(pair) == 2]
    is_object = len(names) == len(value) and all(isinstance(name, str) for name in names)
    return dict(value) if is_object and len(set(names)) == len(names) else value


class Element:
    """One element, with checked access to its fields."""

    def __init__(self, section: str, index: int, value: object, vhost: str | None) -> None:
        """``vhost`` is the virtual host of elements that name none."""
        self.path = f"$.{section}[{index}]"
        if not isinstance(value, dict):
            raise DocumentError(self.path, f"an object is needed, not {json_type(value)}")
        check_nested(value, self.path)
        self.value: Mapping[str, object] = value
        self._vhost = vhost

    def fail(self, field: str, text: str) -> DocumentError:
        """Return an error with the place of a field."""
        return DocumentError(member(self.path, field), text)

    def text(
        self, field: str, default: str | None = None, *, bytes_max: int = NAME_BYTES_MAX
    ) -> str:
        """Return a text field; without a default it is required."""
        value = self.value.get(field, default)
        if value is None:
            raise self.fail(field, "the field is missing")
        if not isinstance(value, str):
            raise self.fail(field, f"a string is needed, not {json_type(value)}")
        if len(value.encode()) > bytes_max:
            raise self.fail(field, f"a string of at most {bytes_max} bytes is needed")
        return value

    def flag(self, field: str, default: bool) -> bool:
        """Return a boolean field."""
        value = self.value.get(field, default)
        if not isinstance(value, bool):
            raise self.fail(field, f"true or false is needed, not {json_type(value)}")
        return value

    def mapping(self, field: str) -> dict[str, object]:
        """Return an object field; a missing one is empty."""
        value = as_object(self.value.get(field))
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.fail(field, f"an object is needed, not {json_type(value)}")
        return value

    def arguments(self) -> dict[str, object]:
        """Return the arguments, checked for a field table."""
        arguments = self.mapping(ARGUMENTS)
        for name, item in arguments.items():
            _check_argument(name, item, member(member(self.path, ARGUMENTS), name))
        text = self.text(TYPED, "", bytes_max=TYPED_BYTES_MAX)
        if not text:
            return arguments
        try:
            return typed_arguments(arguments, text)
        except ValueError as error:
            raise self.fail(TYPED, str(error)) from None

    def vhost(self) -> str:
        """Return the name of the element's virtual host."""
        if self._vhost is not None and "vhost" not in self.value:
            return self._vhost
        return self.name("vhost", "virtual host")

    def name(self, field: str, kind: str) -> str:
        """Return a field with a valid name of a user or virtual host."""
        value = self.text(field)
        try:
            check_name(kind, value)
        except AccountError as error:
            raise self.fail(field, str(error)) from None
        return value


def read_exchange(element: Element) -> Exchange:
    """Return the exchange that an element describes."""
    return Exchange(
        element.path,
        element.vhost(),
        element.text("name"),
        element.text("type"),
        element.flag("durable", True),
        element.flag("auto_delete", False),
        element.flag("internal", False),
        element.arguments(),
    )


def read_queue(element: Element) -> Queue:
    """Return the queue that an element describes; its type may stand beside its arguments."""
    arguments, classic = element.arguments(), False
    if "type" in element.value and QUEUE_TYPE not in arguments:
        kind = element.text("type").removeprefix("rabbit_").removesuffix("_queue")
        classic = kind == CLASSIC
        if kind and not classic:
            arguments = {**arguments, QUEUE_TYPE: kind}
    name = element.text("name")
    if not name:
        raise element.fail("name", "a queue must have a name")
    return Queue(
        element.path,
        element.vhost(),
        name,
        element.flag("durable", True),
        element.flag("auto_delete", False),
        arguments,
        classic,
    )


def read_binding(element: Element) -> Binding:
    """Return the binding that an element describes."""
    kind = element.text("destination_type", QUEUE)
    if kind not in (QUEUE, EXCHANGE):
        raise element.fail("destination_type", f"expected queue or exchange, not '{kind}'")
    return Binding(
        element.path,
        element.vhost(),
        element.text("source"),
        kind,
        element.text("destination"),
        element.text("routing_key", ""),
        element.arguments(),
    )


def read_account(element: Element) -> Account:
    """Return the user that an element describes.

    Raises:
        DocumentError: the algorithm of the password hash is unknown.
    """
    account, hash_problem = read_account_in_part(element)
    if hash_problem:
        raise element.fail("hashing_algorithm", hash_problem)
    return account


def read_account_in_part(element: Element) -> tuple[Account, str]:
    """Return the user that an element describes, and the problem with its hash, or "".

    With a problem, the user has no password.
    """
    name = element.name("name", "user")
    password_hash, hash_problem = _read_hash(element)
    return Account(name, password_hash, read_tags(element), _read_scram(element)), hash_problem


def read_tags(element: Element) -> tuple[str, ...]:
    """Return the tags of a user, given as a list, or as words separated by commas."""
    tags = element.value.get("tags", [])
    if isinstance(tags, str):
        tags = [tag for tag in tags.replace(",", " ").split(" ") if tag]
    if not isinstance(tags, list):
        raise element.fail("tags", f"a list is needed, not {json_type(tags)}")
    if len(tags) > TAGS_MAX:
        raise element.fail("tags", f"a user may have at most {TAGS_MAX} tags")
    for index, tag in enumerate(tags):
        path = f"tags[{index}]"
        if not isinstance(tag, str) or not tag or len(tag) > NAME_BYTES_MAX:
            raise DocumentError(
                f"{element.path}.{path}",
                f"a tag must be a word of at most {NAME_BYTES_MAX} characters",
            )
        if any(character.isspace() or not character.isprintable() for character in tag):
            raise DocumentError(f"{element.path}.{path}", "a tag must be one word")
    return tuple(tags)


def _read_hash(element: Element) -> tuple[str, str]:
    """Return the password hash of a user, and the problem with it, or "".

    An element with a password is an error: :class:`.user_passwords.UserPasswords` has replaced the
    passwords that have no hash.
    """
    encoded_hash = element.text("password_hash", "", bytes_max=1024)
    if element.text("password", "", bytes_max=PASSWORD_BYTES_MAX):
        raise element.fail("password", "'password' and 'password_hash' exclude each other")
    algorithm = element.text("hashing_algorithm", "")
    if not encoded_hash:
        return NO_PASSWORD, ""
    if algorithm == ARGON2ID:
        if not encoded_hash.startswith(ARGON2ID_PREFIX) or not encoded_hash.isprintable():
            raise element.fail("password_hash", f"not a hash of {ARGON2ID}")
        return encoded_hash, ""
    if algorithm and algorithm not in FOREIGN_HASHES:
        return NO_PASSWORD, f"unknown password hash '{algorithm}'"
    try:
        salted_digest = base64.b64decode(encoded_hash, validate=True)
    except (binascii.Error, ValueError):
        raise element.fail("password_hash", "not valid base64") from None
    if not algorithm and len(salted_digest) == MD5_SIZE:
        return NO_PASSWORD, f"unknown password hash '{MD5}'"
    algorithm = algorithm or SHA256
    prefix, size = FOREIGN_HASHES[algorithm]
    if len(salted_digest) != size:
        text = f"a hash of {algorithm} has {size} bytes with its salt, not {len(salted_digest)}"
        raise element.fail("password_hash", text)
    return f"{prefix}${encoded_hash}", ""


def _read_scram(element: Element) -> ScramKeys | None:
    """Return the SCRAM keys of a user with a Headrace hash; None if it has none."""
    fields = element.mapping(SCRAM_FIELD)
    if not fields or element.value.get("hashing_algorithm") != ARGON2ID:
        return None
    iterations = fields.get("iterations")
    if not isinstance(iterations, int) or iterations not in SCRAM_ITERATIONS:
        raise element.fail(SCRAM_FIELD, "iterations must be a number from 4096 to 1000000")
    values = []
    for name in ("salt", "stored_key", "server_key"):
        try:
            values.append(base64.b64decode(str(fields.get(name, "")), validate=True))
        except (binascii.Error, ValueError, TypeError):
            raise element.fail(SCRAM_FIELD, f"{name} is not valid base64") from None
        if not 0 < len(values[-1]) <= SCRAM_BYTES_MAX:
            raise element.fail(SCRAM_FIELD, f"{name} must have 1 to {SCRAM_BYTES_MAX} bytes")
    return ScramKeys(iterations, *values)


def _check_argument(name: str, value: object, path: str) -> None:
    if len(name.encode()) > NAME_BYTES_MAX:
        raise DocumentError(
            path, f"the name of an argument may have at most {NAME_BYTES_MAX} bytes"
        )
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise DocumentError(path, "a whole number may have at most 64 bits")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_argument(key, item, member(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_argument("", item, f"{path}[{index}]")
