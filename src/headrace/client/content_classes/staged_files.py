# SPDX-License-Identifier: Apache-2.0
"""Files that are staged first and then published, in every version with a file class.

An interrupted transfer continues, because the receiver announces how many bytes it has.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.client.content_classes.shielded_task import ShieldedTask
from headrace.client.errors import ProtocolViolation, UsageError
from headrace.client.message import octets_of

if TYPE_CHECKING:
    from collections.abc import Callable

STAGED_MAX = 1 << 30  # The maximum bytes of files that are staged and not yet delivered.

Properties = TypeVar("Properties")
Publish = TypeVar("Publish")


@dataclass(slots=True, eq=False)
class ReceivedFile(Generic[Properties]):
    """A file from a queue, or a published one that was returned (`returned` says why)."""

    body: bytes
    properties: Properties
    exchange: str = ""
    routing_key: str = ""
    delivery_tag: int = 0
    consumer_tag: str = ""
    redelivered: bool = False
    returned: str = ""


@dataclass(slots=True)
class Staged(Generic[Properties]):
    """The bytes received so far of one file."""

    body: bytearray = field(default_factory=bytearray)
    properties: Properties | None = None
    size: int = 0


class StagedFiles(Generic[Properties, Publish]):
    """The staging of files in both directions; subclasses send the commands of their version."""

    #: The constructors of the version's file properties and file.publish.
    _make_properties: Callable[[], Properties]
    _make_publish: Callable[..., Publish]

    def __init__(self, staged: dict[str, Staged[Properties]] | None) -> None:
        self.staged: dict[str, Staged[Properties]] = {} if staged is None else staged
        self._open = ""  # The identifier of the file that the next file.stage belongs to.
        self._staging = asyncio.Lock()  # Held while a file is staged: they are sent one by one.
        self._last_publish: ShieldedTask[int] | None = None

    # --- To the broker --------------------------------------------------------------------------

    async def publish(
        self,
        body: bytes,
        routing_key: str = "",
        exchange: str = "",
        *,
        identifier: str = "",
        properties: Properties | None = None,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> int:
        """Stage and publish a file; return the number of bytes that the broker already had.

        A cancelled call does not stop the publish; the next publish waits for it.
        """
        identifier = identifier or uuid.uuid4().hex
        publish = self._make_publish(
            exchange=exchange,
            routing_key=routing_key,
            mandatory=mandatory,
            immediate=immediate,
            identifier=identifier,
        )
        self._last_publish = ShieldedTask(
            self._publish(
                identifier, publish, octets_of(body), properties or self._make_properties()
            )
        )
        return await self._last_publish.outcome()

    async def _publish(
        self, identifier: str, publish: Publish, body: bytes, properties: Properties
    ) -> int:
        async with self._staging:
            offset = await self._ask_staged(identifier, len(body))
            if offset > len(body):
                text = f"the broker has {offset} bytes of {identifier!r}"
                raise UsageError(f"{text}, not {len(body)}")
            await self._send_stage(properties, body[offset:])
            await self._send_publish(publish)
            return offset

    async def _ask_staged(self, identifier: str, size: int) -> int:
        """Open a file of `size` bytes; return how many of them the broker has."""
        raise NotImplementedError

    async def _send_stage(self, properties: Properties, body: bytes) -> None:
        """Send the bytes that the broker lacks."""
        raise NotImplementedError

    async def _send_publish(self, publish: Publish) -> None:
        """Publish the file that was staged."""
        raise NotImplementedError

    # --- From the broker ------------------------------------------------------------------------

    def _begin_staged(self, identifier: str, size: int) -> int:
        """Open a file of `size` bytes from the broker; return how many of them are staged.

        Raises:
            ProtocolViolation: the broker stages more than `STAGED_MAX` bytes at a time.
        """
        staged = self.staged.setdefault(identifier, Staged())
        staged.size = size
        if sum(staged_file.size for staged_file in self.staged.values()) > STAGED_MAX:
            raise ProtocolViolation(f"more than {STAGED_MAX} bytes of files are staged")
        self._open = identifier
        return len(staged.body)

    def _add_staged(self, body: bytes, properties: Properties | None) -> None:
        """Add bytes to the open file.

        Raises:
            ProtocolViolation: the file has more bytes than the broker announced.
        """
        staged = self.staged.setdefault(self._open, Staged())
        staged.body += body
        if properties is not None:
            staged.properties = properties
        if len(staged.body) > staged.size:
            raise ProtocolViolation(f"more than {staged.size} bytes were staged")

    def _take_staged(self, identifier: str) -> tuple[bytes, Properties]:
        """Remove a file that is delivered; return its body and properties."""
        staged = self.staged.pop(identifier, None) or Staged()
        return bytes(staged.body), staged.properties or self._make_properties()
