# SPDX-License-Identifier: Apache-2.0
"""A stream for programs without asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.blocking.calls import StreamCalls

if TYPE_CHECKING:
    from headrace.client.stream import stream as _stream


class Stream(StreamCalls):
    """A stream of a connection; get one with `connection.stream(name)`.

    A read waits for records that have not arrived; each batch or block may take the `timeout_s` of
    the connection.
    """

    def __init__(self, source: _stream.Stream, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s
