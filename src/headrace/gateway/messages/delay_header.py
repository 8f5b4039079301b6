# SPDX-License-Identifier: Apache-2.0
"""Publishes with the header ``x-delay``; see :mod:`headrace.model.queue_kinds.delayed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.conversion.headers import header_at, read_headers
from headrace.gateway.conversion.neutral_transfer import with_application_header
from headrace.gateway.conversion.neutral_values import STR16, CannotConvert
from headrace.gateway.messages.route import Route
from headrace.model.errors import PreconditionFailed
from headrace.model.queue_kinds.delayed import HEADER, PUBLISHER, parse_delay
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.errors import MalformedError
from headrace.wire.properties import with_header_entry_at
from headrace.wire.table import encode_entry

if TYPE_CHECKING:
    from headrace.gateway.security.user import User
    from headrace.model.vhost.virtual_host import VirtualHost

ENTRY = bytes((len(HEADER),)) + HEADER.encode()  # The encoded key of the header.
NO_ROOM = "invalid message: its headers have no room for the publisher of a delayed message"


def publisher_account(user: User) -> str:
    """Return the account whose rights count when the message of a user is due; empty for none.

    A user with a token has none: the token's rights end with it.
    """
    return "" if getattr(user, "grants", None) is not None else user.name


def add_publisher(data: bytes, header: int, account: str) -> bytes:
    """Return a publish of 0-x with its publisher's account in a header.

    Raises:
        PreconditionFailed: the headers have no room for one more.
    """
    try:
        return with_header_entry_at(data, header, encode_entry(PUBLISHER, account))
    except MalformedError:
        raise PreconditionFailed(NO_ROOM) from None


def add_publisher_0_10(segment: bytes, account: str) -> bytes:
    """Do the same as :func:`add_publisher` for a header segment of 0-10."""
    try:
        return with_application_header(segment, PUBLISHER.encode(), (STR16, account.encode()))
    except CannotConvert:
        raise ExecutionError(ExecutionCode.PRECONDITION_FAILED, NO_ROOM) from None


def read_delay(data: bytes, header: int) -> int:
    """Return the delay of a publish of 0-x in milliseconds; 0 when it has none.

    ``data`` is laid out as in :class:`headrace.model.message.Message`; its header frame starts at
    ``header``.

    Raises:
        PreconditionFailed: the delay is not a number of milliseconds.
    """
    return parse_delay(read_headers(header_at(data, header)[0]))


def delayed_route(vhost: VirtualHost, route: Route) -> Route:
    """Return the route to the queue in which a delayed message waits.

    An unroutable message is not delayed, nor is one for the broker's own queues.
    """
    if route.count == 0 or route.is_served_by_broker:
        return route
    return Route(route.key, (vhost.delayed.queue(),), 0, tally=route.tally)
