# SPDX-License-Identifier: Apache-2.0
"""The queues that commands name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import NotFound

if TYPE_CHECKING:
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.model.queue.queue import Queue


def queue_of(session: Session010, name: str | None) -> Queue:
    """Return the queue of that name, if the session may use it.

    Raises:
        NotFound: there is none.
        AccessRefused: it is the broker's own.
        ResourceLocked: it is exclusive to another session.
    """
    if not name:
        raise NotFound("a queue has a name")
    return session.vhost.find_queue(name, session)
