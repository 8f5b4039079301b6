# SPDX-License-Identifier: Apache-2.0
"""The virtual host of a session, as its user may change it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.gateway.security.authorized_host import AuthorizedHost, Dialect
from headrace.gateway.v0_10.errors import translate
from headrace.model.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.gateway.v0_10.session.session import Session010
    from headrace.protocol.codec_0_10 import Command


@contextmanager
def host_of(session: Session010, command: Command) -> Iterator[AuthorizedHost]:
    """Give the session's virtual host, to change by the rules of 0-10.

    Raises:
        ExecutionError: the command is refused; it blames one of the command's fields.
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
        blamed = (part for part in (host.part, "name") if part in command.FIELDS)
        raise translate(error, command, next(blamed, "")) from None
