# SPDX-License-Identifier: Apache-2.0
"""The port of the file class that the uploads of its channel or session use."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.content_classes.port import ContentClassPort

if TYPE_CHECKING:
    from headrace.gateway.content_classes.bodies import Reader, Staging
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.transaction.transaction import Transaction
    from headrace.model.vhost.virtual_host import VirtualHost


class FilePort(ContentClassPort):
    """Files of one channel or session."""

    def __init__(self, vhost: VirtualHost, owner: str, number: int) -> None:
        """``owner`` is the user, ``number`` the connection's."""
        self.vhost = vhost
        self.staging = cast("Staging", vhost.files)  # A broker with a disk has one.
        self.owner = owner
        self.number = number

    def send_open_ok(self, staged: int) -> None:
        """Send file.open-ok; ``staged`` is the number of bytes of the file that the broker has."""
        self.reply(self.codec.FileOpenOk(staged_size=staged))

    def send_flow(self, active: bool) -> None:
        """Request the client to stop publishing, or to resume."""
        raise NotImplementedError

    def close_for(self, error: Exception) -> None:
        """Close the channel or session for an error that came after its method was handled."""
        raise NotImplementedError

    def pause(self) -> None:
        """Handle no further methods until :meth:`resume`."""
        raise NotImplementedError

    def resume(self) -> None:
        """Handle the methods that arrived since :meth:`pause`."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Stop reading from the client until the disk has caught up."""
        raise NotImplementedError

    def send_return(self, code: int, text: str, message: Message, reader: Reader) -> bool:
        """Send file.return with the whole body; return True if :meth:`resume` is called later."""
        raise NotImplementedError

    def transaction(self) -> Transaction | None:
        """Return the transaction of the branch that the channel works for, or None."""
        return None

    def transactional(self) -> bool:
        """Return True if publishes and outcomes wait for :meth:`.file.FileClass.commit`."""
        return False

    def defer_publish(self, message: Message, queues: list[Queue]) -> None:
        """Add a publish to the transaction, for the commit."""
        raise NotImplementedError
