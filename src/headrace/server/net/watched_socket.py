# SPDX-License-Identifier: Apache-2.0
"""The base of sockets that the event loop's epoll serves without asyncio."""


class WatchedSocket:
    """A socket that is read and written when it is ready."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.reading = False  # Call :meth:`read` when there is input.
        self.writing = False  # Call :meth:`write_more` when there is room.

    def read(self) -> None:
        """Read input, or the end of the stream."""

    def write_more(self) -> None:
        """Send more output."""

    def flush(self) -> None:
        """Send the pending output, as far as the socket takes it."""

    def name(self) -> str:
        """Return its name in log lines."""
        return f"file {self.fd}"
