# SPDX-License-Identifier: Apache-2.0
"""The rows of the standards' tables: versions, methods, fields, content classes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MethodId = tuple[int, int]


class Version(Enum):
    """A version of AMQP; the value is its protocol header."""

    V0_8 = b"AMQP\x01\x01\x08\x00"
    V0_9 = b"AMQP\x01\x01\x00\x09"
    V0_9_1 = b"AMQP\x00\x00\x09\x01"
    V0_10 = b"AMQP\x01\x01\x00\x0a"

    @property
    def header(self) -> bytes:
        """The protocol header of this version."""
        return self.value

    @property
    def label(self) -> str:
        """The usual text of the version, such as `0-9-1`."""
        return self.name[1:].replace("_", "-")


V0_8, V0_9, V0_9_1, V0_10 = Version
VERSIONS_0_X = (V0_8, V0_9, V0_9_1)  # Versions that share frames, methods and type tags.


def since(version: Version) -> tuple[Version, ...]:
    """Return `version` and the later ones of the 0-x family."""
    return VERSIONS_0_X[VERSIONS_0_X.index(version) :]


def until(version: Version) -> tuple[Version, ...]:
    """Return `version` and the earlier ones of the 0-x family."""
    return VERSIONS_0_X[: VERSIONS_0_X.index(version) + 1]


def only(version: Version) -> tuple[Version, ...]:
    """Return `version` alone."""
    return (version,)


class Receiver(Enum):
    """The peers that may receive a method."""

    CLIENT = "client"
    SERVER = "server"
    EITHER = "either"


CLIENT, SERVER, EITHER = Receiver

FIELD_TYPES = frozenset(
    {
        "bit",
        "octet",
        "short",
        "long",
        "longlong",
        "shortstr",
        "longstr",
        "timestamp",
        "table",
        "content",  # 0-9 message class: an octet (0 inline, 1 reference) and a longstr.
    }
)


@dataclass(frozen=True, slots=True)
class Field:
    """An argument of a method, or a content property."""

    name: str  # The name in the standard, such as "routing-key".
    type: str

    def __post_init__(self) -> None:
        assert self.type in FIELD_TYPES, self


def parse_fields(text: str) -> tuple[Field, ...]:
    """Parse fields written as "name:type name:type"."""
    return tuple(Field(*word.split(":")) for word in text.split())


@dataclass(frozen=True, slots=True)
class Method:
    """A method, as some versions define it; arguments are in wire order."""

    name: str
    id: MethodId
    arguments: str
    versions: tuple[Version, ...]
    receiver: Receiver
    replies: str = ""
    content: bool = False
    extension: bool = False  # True if peers use it, but the standard does not have it.
    appended: int = 0  # The number of last arguments that are extensions and may be absent.

    @property
    def fields(self) -> tuple[Field, ...]:
        """The arguments, parsed at each call, since a broker needs those of few rows."""
        return parse_fields(self.arguments)

    @property
    def reply_names(self) -> tuple[str, ...]:
        """The full names of the methods that answer this one."""
        prefix = self.name.split(".")[0]
        return tuple(f"{prefix}.{reply}" for reply in self.replies.split())


@dataclass(frozen=True, slots=True)
class ContentClass:
    """A content class, with its properties in flag order (bit 15 first)."""

    name: str
    id: int
    arguments: str
    versions: tuple[Version, ...]

    @property
    def properties(self) -> tuple[Field, ...]:
        """The properties, parsed at each call."""
        return parse_fields(self.arguments)
