# SPDX-License-Identifier: Apache-2.0
"""Reads the headers of a queue's messages, for queues whose order depends on them."""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import Message
    from headrace.model.ports import Store

if TYPE_CHECKING:
    from headrace.model.queue.queue_host import QueueHost


class HeaderReader:
    """Reads headers of the messages of one queue, paged out or not."""

    def __init__(self, store: Store, host: "QueueHost | None") -> None:
        self._store = store
        self._host = host

    def read(self, message: Message, name: str) -> object:
        """Return the value of a header; None if it is absent or cannot be read."""
        contents = None if self._host is None else self._host.contents
        if contents is None:
            return None
        paged = message.flags & C_PAGED
        if paged:
            try:
                self._store.load(message)
            except OSError:
                return None  # The queue reports the error when it loads the message.
        value: object = contents.header(message, name)
        if paged:
            self._store.page_out(message)
        return value
