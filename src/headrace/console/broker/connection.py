# SPDX-License-Identifier: Apache-2.0
"""One connection to the management socket."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.management_socket import short_address

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from headrace.untyped import JsonObject

LINE_BYTES_MAX = 64 << 20  # The longest line of an answer: a slice of a sample may be long.
SILENT_S = 60.0  # How long the broker may be silent; busy lines come every 10 s.
OTHER_VERSION = "the broker's answer is unknown: is the console of this version?"
FRESH_S = 240.0  # The broker closes connections that are idle for 300 s.


class SocketConnection:
    """A connection to the broker's socket; it runs one operation at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._used_s = time.monotonic()
        self.is_whole = True  # False while an answer is incomplete.

    @classmethod
    async def open(cls, path: Path) -> SocketConnection:
        """Connect to the broker.

        Raises:
            BrokerGone: no broker listens on the socket.
        """
        try:
            with short_address(path) as address:
                streams = await asyncio.open_unix_connection(address, limit=LINE_BYTES_MAX)
        except OSError as error:
            raise BrokerGone(f"{path}: {error.strerror or error}") from None
        return cls(*streams)

    @property
    def is_usable(self) -> bool:
        """True while the broker keeps the connection open for another request."""
        fresh = time.monotonic() - self._used_s < FRESH_S
        return self.is_whole and fresh and not self._reader.at_eof()

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()

    async def exchange(
        self, request: JsonObject, rows: list[JsonObject] | None = None
    ) -> AsyncGenerator[JsonObject, None]:
        """Send a request, and ``rows`` for operations that take them; yield the answer's lines.

        Raises:
            OperationRefused: the broker refused it.
            BrokerGone: the connection ended, or the broker is silent for ``SILENT_S``.
        """
        lines = [request] if rows is None else [request, *rows, {"end": True}]
        self.is_whole = False
        try:
            self._writer.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            async with asyncio.timeout(SILENT_S):  # In 3.11 wait_for may swallow a cancellation.
                await self._writer.drain()
            while True:
                line = await self._read_line()
                if "error" in line:
                    if rows is None:  # Else the broker has closed the connection.
                        self._end()
                    raise OperationRefused(str(line.get("code", "")), str(line["error"]))
                if "done" in line:
                    self._end()
                    yield line
                    return
                yield line
        except TimeoutError:
            raise BrokerGone(f"the broker is silent for {SILENT_S:.0f} s") from None
        except OSError as error:
            raise BrokerGone(f"the broker's socket: {error.strerror or error}") from None

    def _end(self) -> None:
        self.is_whole = True
        self._used_s = time.monotonic()

    async def _read_line(self) -> JsonObject:
        try:
            async with asyncio.timeout(SILENT_S):
                text = await self._reader.readline()
            line = json.loads(text) if text else None
        except ValueError:
            raise BrokerGone(OTHER_VERSION) from None
        if not isinstance(line, dict):
            raise BrokerGone("the broker closed the connection")
        if not isinstance(line.get("done", {}), dict):
            raise BrokerGone(OTHER_VERSION)
        return line
