# SPDX-License-Identifier: Apache-2.0
"""Who may use a broker: accounts, and what they may do in each virtual host."""

from dataclasses import dataclass, field

from headrace.model.policy.parameters import Json, Key

NAME_BYTES_MAX = 255  # Names travel as short strings.


class AccountError(Exception):
    """A change of users, virtual hosts or permissions that cannot be made."""


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What SCRAM-SHA-256 needs of a password (RFC 5802); the password does not follow from it."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Account:
    """A user that may log in."""

    name: str
    password_hash: str = field(repr=False)
    tags: tuple[str, ...] = ()
    scram: ScramKeys | None = None  # None for those whose password was set before there were any.


@dataclass(frozen=True, slots=True)
class Permission:
    """Regular expressions: the names that a user may configure, write to and read from."""

    configure: str
    write: str
    read: str

    def pattern(self, action: str) -> str:
        """The expression for ``configure``, ``write`` or ``read``."""
        if action == "configure":
            return self.configure
        return self.write if action == "write" else self.read


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Regular expressions: the routing keys that a user may publish and bind with.

    ``{username}`` and ``{vhost}`` in them stand for those names, taken literally.
    """

    write: str
    read: str

    def pattern(self, action: str) -> str:
        """The expression for ``write`` or ``read``."""
        return self.write if action == "write" else self.read


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is known of users at one moment."""

    accounts: dict[str, Account] = field(default_factory=dict)
    vhosts: dict[str, int] = field(default_factory=dict)  # Name to id; ids are never reused.
    permissions: dict[tuple[str, str], Permission] = field(default_factory=dict)  # (user, vhost)
    parameters: dict[Key, Json] = field(default_factory=dict)
    # By user, virtual host, exchange.
    topic_permissions: dict[tuple[str, str, str], TopicPermission] = field(default_factory=dict)


def check_name(what: str, name: str) -> None:
    """Raise AccountError when `name` cannot name a user or a virtual host."""
    if not name:
        raise AccountError(f"the name of a {what} may not be empty")
    if len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise AccountError(f"the name of a {what} may not be longer than {NAME_BYTES_MAX} octets")
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise AccountError(f"the name of a {what} may not contain control characters")
