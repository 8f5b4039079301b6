# SPDX-License-Identifier: Apache-2.0
"""The port through which the file class stages and reads the bodies of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.spec.tables import Version


class Body(Protocol):
    """A stored body that messages refer to."""

    number: int
    size: int  # Bytes.


class Reader(Protocol):
    """Reads one stored body."""

    handle: int  # Below 0 once it is closed.
    size: int  # Bytes.

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position`` on."""

    def close(self) -> None:
        """Close the file."""


class Uploader(Protocol):
    """The uploads of one channel or session."""

    @property
    def number(self) -> int:
        """The number of the connection."""

    def on_taken_over(self, part: StagedBody) -> None:
        """Detach from a body that the same user goes on staging over another connection."""

    def on_staging_failed(self, part: StagedBody, error: OSError) -> None:
        """Handle a failed write of an upload."""


class StagedBody(Protocol):
    """A body that a client stages or has staged."""

    size: int  # Bytes announced by file.open.
    received: int  # Bytes that have arrived.
    header: bytes
    version: Version  # The AMQP version that the header is encoded in.
    holder: Uploader | None  # The upload that stages it now.
    waiters: list[Callable[[], None]]  # Publishes that wait for its end.

    @property
    def is_whole(self) -> bool:
        """Return True if the whole body was received."""


class Staging(Protocol):
    """The staged and stored file bodies of one virtual host."""

    size_max: int  # Bytes of one body.
    paused: dict[object, None]  # Transports that are not read.

    def find(self, owner: str, identifier: str) -> StagedBody | None:
        """Return the body that a user stages or has staged under an identifier, or None."""

    def open(
        self,
        owner: str,
        identifier: str,
        size: int,
        holder: Uploader,
        on_opened: Callable[[StagedBody | None, OSError | None], None],
    ) -> bool:
        """Begin to stage a body, and call ``on_opened``; return False if there is no room yet."""

    def wait_for_room(self, who: Uploader, again: Callable[[], bool]) -> bool:
        """Call ``again`` once there may be room; return False if too many wait."""

    def remove_waiter(self, who: Uploader) -> None:
        """Remove an upload from the queue of uploads that wait for disk space."""

    def suspend(self, part: StagedBody) -> None:
        """Interrupt the staging of a body; it is kept for a while."""

    def add(self, part: StagedBody, data: bytes) -> None:
        """Append to a body."""

    def is_behind(self) -> bool:
        """Return True if too many bytes wait for the disk."""

    def pause(self, transport: object) -> None:
        """Read nothing from a transport until the disk has caught up."""

    def seal(
        self, part: StagedBody, on_sealed: Callable[[Body | None, OSError | None], None]
    ) -> None:
        """Complete a staged body, so that messages can refer to it."""

    def find_body(self, data: bytes) -> Body | None:
        """Return the body that the data of a message refers to."""

    def reader(self, body: Body) -> Reader:
        """Open a body for reading."""

    def add_reference(self, data: bytes) -> bool:
        """Count one more message that refers to a body; return False if the body is missing."""

    def remove_reference(self, data: bytes) -> None:
        """Count one message less that refers to a body."""
