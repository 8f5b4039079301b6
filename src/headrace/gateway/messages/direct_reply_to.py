# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to: replies to a client that has declared no queue for them.

A client consumes from the name ``amq.rabbitmq.reply-to`` and publishes requests that have this
name as their ``reply-to``. The broker declares a queue for it with a name that cannot be guessed,
exclusive to the connection (in 0-10 the session), and puts that name into the ``reply-to`` of its
requests. Replies reach the queue through the default exchange. The queue is deleted with its
consumer.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from headrace.model.errors import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost

REPLY_TO = "amq.rabbitmq.reply-to"


class Owner(Protocol):
    """A connection or session that uses a virtual host."""

    vhost: VirtualHost


class Requester(Protocol):
    """A channel or session that sends requests."""

    reply_queue: Queue | None


def is_reply_name(name: str) -> bool:
    """Return True if a queue name belongs to direct reply-to."""
    return name == REPLY_TO or name.startswith(REPLY_TO + ".")


def make_queue(owner: Owner, requester: Requester, accepts: bool) -> Queue:
    """Declare the queue for the replies to ``requester``.

    ``owner`` is the connection or session that the queue is exclusive to. ``accepts`` is True for
    a consumer that acknowledges.

    Raises:
        PreconditionFailed: the consumer acknowledges, or ``requester`` has such a queue already.
    """
    if accepts:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if requester.reply_queue is not None and not requester.reply_queue.deleted:
        raise PreconditionFailed("reply consumer already set")
    queue: Queue = owner.vhost.declare_queue(
        exclusive=True,
        auto_delete=True,
        owner=owner,
        fresh_name=f"{REPLY_TO}.{secrets.token_urlsafe(18)}",
    )
    requester.reply_queue = queue
    return queue


@contextmanager
def queue_for_consumer(owner: Owner, requester: Requester, accepts: bool) -> Iterator[Queue]:
    """Declare the queue for the replies to ``requester``, and delete it if its consumer fails.

    The parameters and errors are those of :func:`make_queue`. The block starts the consumer. A
    queue without it would collect replies until the connection ends.
    """
    queue = make_queue(owner, requester, accepts)
    try:
        yield queue
    except BaseException:
        requester.reply_queue = None
        owner.vhost.delete_queue(queue.name, owner=owner)
        raise


def reply_address(requester: Requester) -> str:
    """Return the ``reply-to`` for the requests of a channel or session.

    Raises:
        PreconditionFailed: the channel or session has no consumer of replies.
    """
    queue = requester.reply_queue
    if queue is None or queue.deleted:
        raise PreconditionFailed("fast reply consumer does not exist")
    return queue.name
