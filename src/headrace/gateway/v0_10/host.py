# SPDX-License-Identifier: Apache-2.0
"""The virtual host of a session, with the permissions of its user: queues and arguments."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.gateway.security.authorized_host import AuthorizedHost, Dialect
from headrace.gateway.v0_10.errors import translate
from headrace.model.errors import ModelError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.gateway.v0_10.session.session import Session010
    from headrace.model.queue.queue import Queue
    from headrace.protocol.codec_0_10 import Command

# Types of arguments that all versions have.
PLAIN: tuple[type, ...] = (bool, int, float, str, bytes)


@contextmanager
def authorized_host(session: Session010, command: Command) -> Iterator[AuthorizedHost]:
    """Yield the session's virtual host, with the rules of 0-10.

    Raises:
        ExecutionError: the command is refused; the error names one of the command's fields.
    """
    shared = session.context
    host = AuthorizedHost(
        shared.context,
        session.vhost,
        session.user,
        session,
        Dialect.V0_10,
        strict=shared.strict_arguments,
    )
    try:
        yield host
    except ModelError as error:
        blamed = (field for field in (host.blamed_field, "name") if field in command.FIELDS)
        raise translate(error, command, next(blamed, "")) from None


# Keeps 0-10/s091, 0-10/s210, 0-10/s242.
def find_queue(session: Session010, name: str | None) -> Queue:
    """Return the queue of that name, if the session may use it.

    Raises:
        NotFound: no queue has that name.
        AccessRefused: the queue is the broker's own.
        ResourceLocked: the queue is exclusive to another session.
    """
    if not name:
        raise NotFound("the name of a queue must not be empty")
    return session.vhost.find_queue(name, session)


def plain(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return a map whose values are of types that do not keep their width on the wire."""
    return {key: _plain_value(value) for key, value in arguments.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    for plain_type in PLAIN:
        if isinstance(value, plain_type):
            return plain_type(value)
    return value
