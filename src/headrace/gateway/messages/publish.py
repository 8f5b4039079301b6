# SPDX-License-Identifier: Apache-2.0
"""One message on its way from a publisher to the queues, as its headers describe it."""


class Publish:
    """The facts of one publish that queues and the journal need, whatever the protocol.

    A connection or session has one and fills it anew for each message. A family's subclass adds
    what its own headers say.
    """

    def __init__(self) -> None:
        self.persistent = False
        self.priority = 0
        self.deadline_ms = 0  # When the message expires, in milliseconds since 1970; 0 is never.
        self.flags = 0  # As in Message.flags: the family's kind, and redelivered.
        self.address_len = 0  # Bytes of exchange and routing key in Message.data.
        self.body_size = 0  # Bytes.
        self.parts: tuple[bytes, ...] | None = None  # A body that is too large to be copied.
