# SPDX-License-Identifier: Apache-2.0
"""Accounts and their permissions in each virtual host."""

from dataclasses import dataclass, field

from headrace.model.policy.parameters import Json, Key

NAME_BYTES_MAX = 255  # Names are short strings on the wire.


class AccountError(Exception):
    """A change of users, virtual hosts or permissions that is refused."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """The keys of SCRAM-SHA-256 (RFC 5802), from which the password cannot be computed."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Account:
    """A user who may log in, with the hash of the password and the tags."""

    name: str
    password_hash: str = field(repr=False)
    tags: tuple[str, ...] = ()
    scram: ScramKeys | None = None  # None for a password set by a version without SCRAM.


@dataclass(frozen=True, slots=True)
class Permission:
    """Regular expressions of the names a user may configure, write to and read from."""

    configure: str
    write: str
    read: str

    def pattern(self, action: str) -> str:
        """Return the expression for ``configure``, ``write`` or ``read``."""
        if action == "configure":
            return self.configure
        return self.write if action == "write" else self.read


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Regular expressions of the routing keys a user may publish and bind with.

    ``{username}`` and ``{vhost}`` are replaced by the names of the user and the virtual host.
    """

    write: str
    read: str

    def pattern(self, action: str) -> str:
        """Return the expression for ``write`` or ``read``."""
        return self.write if action == "write" else self.read


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All users, virtual hosts, permissions and parameters at one time."""

    accounts: dict[str, Account] = field(default_factory=dict)
    vhosts: dict[str, int] = field(default_factory=dict)  # Name to id; ids are never reused.
    # Permissions by user and virtual host.
    permissions: dict[tuple[str, str], Permission] = field(default_factory=dict)
    parameters: dict[Key, Json] = field(default_factory=dict)
    # Topic permissions by user, virtual host and exchange.
    topic_permissions: dict[tuple[str, str, str], TopicPermission] = field(default_factory=dict)


def check_name(kind: str, name: str) -> None:
    """Raise AccountError if `name` cannot name a user or a virtual host."""
    if not name:
        raise AccountError(f"the name of a {kind} may not be empty")
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise AccountError(f"the name of a {kind} may not be longer than {NAME_BYTES_MAX} bytes")
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise AccountError(f"the name of a {kind} may not contain control characters")
