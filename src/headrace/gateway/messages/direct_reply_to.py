# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to: answers to a client that has declared no queue for them.

A client consumes from the name ``amq.rabbitmq.reply-to`` and publishes questions that have this
name as their ``reply-to``. What it consumes from is a queue of its connection's own (in 0-10 its
session's), with a name that cannot be guessed; the questions leave with that name in their
``reply-to``, and answers find the queue through the default exchange as any message finds any
queue. It goes with its consumer.
"""

from __future__ import annotations

import secrets
from typing import Any

from headrace.model.errors import PreconditionFailed

REPLY_TO = "amq.rabbitmq.reply-to"


def is_reply_name(name: str) -> bool:
    """Return True if a queue name belongs to direct reply-to."""
    return name == REPLY_TO or name.startswith(REPLY_TO + ".")


def make_queue(owner: Any, asker: Any, accepts: bool) -> Any:
    """Make the queue that answers to ``asker``, a channel or a session, come to.

    ``owner`` is the connection or session that the queue goes with; ``accepts`` says that answers
    are to be accepted.

    Raises:
        PreconditionFailed: they cannot be, or there is such a queue already.
    """
    if accepts:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if asker.reply_queue is not None and not asker.reply_queue.deleted:
        raise PreconditionFailed("reply consumer already set")
    queue = owner.vhost.declare_queue(
        exclusive=True,
        auto_delete=True,
        owner=owner,
        fresh_name=f"{REPLY_TO}.{secrets.token_urlsafe(18)}",
    )
    asker.reply_queue = queue
    return queue


def answers_to(asker: Any) -> str:
    """Return what stands in the ``reply-to`` of a channel's or a session's questions.

    Raises:
        PreconditionFailed: it has no consumer for answers.
    """
    queue = asker.reply_queue
    if queue is None or queue.deleted:
        raise PreconditionFailed("fast reply consumer does not exist")
    name: str = queue.name
    return name
