# SPDX-License-Identifier: Apache-2.0
"""The base of sockets that the event loop's epoll serves without asyncio."""


class WatchedSocket:
    """A socket that is read and written when it is ready."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.reading = False  # The loop calls :meth:`read` when the socket has input.
        self.writing = False  # The loop calls :meth:`write_more` when the socket has room.

    def read(self) -> None:
        """Read input, or the end of the stream."""

    def write_more(self) -> None:
        """Send further output: the socket has room."""

    def flush(self) -> None:
        """Send the pending output, as far as the socket takes it."""

    def name(self) -> str:
        """Return the name of the socket in log lines."""
        return f"file {self.fd}"
