# SPDX-License-Identifier: Apache-2.0
"""The transport of a connection with TLS: asyncio's, behind the interface of the plain one."""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import Endpoint
    from headrace.server.net.transport import Reactor, Transport

from headrace.server.net.transport import CHUNK_MAX

BUFFERED_MAX = 131072  # Bytes in asyncio's buffer above which writing pauses.


class TlsTransport(Transport):
    """A TLS connection: asyncio encrypts and buffers, and this is its protocol object."""

    def __init__(self, reactor: Reactor, sock: Any, connection: Endpoint, peer: Any = None) -> None:
        """``peer`` gets the client's certificate once it is verified."""
        self.full = False  # asyncio's buffer is above its high-water mark.
        self.gone = False  # The socket was lost while the connection was frozen.
        Transport.__init__(self, reactor, sock, connection)
        self.peer = peer

    def connection_made(self, stream: Any) -> None:
        """Begin to read and write, as the TLS handshake has succeeded; called by asyncio."""
        self.stream = stream
        if self.peer is not None:
            self.peer.certificate = stream.get_extra_info("peercert")
        stream.set_write_buffer_limits(high=BUFFERED_MAX)
        self.reading = True
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Feed decrypted input to the connection; called by asyncio."""
        if self.closed:
            return
        self.idle_ticks = 0
        if self.unhandled is not None:
            data = self.unhandled + data
            self.keep_unhandled(None)
        if self.due or self.frozen:  # asyncio had read this input before reading was paused.
            self.keep_unhandled(data)
            return
        self.feed(bytearray(data), len(data))
        self.reactor.turn()

    def eof_received(self) -> bool:
        """Close the connection, as the peer has ended its output; called by asyncio."""
        if self.frozen:
            self.gone = True
            return False
        self.abort()
        return False

    def connection_lost(self, error: BaseException | None) -> None:
        """End the connection, as the socket is lost; called by asyncio."""
        if self.frozen and not self.closed:
            self.gone = True
            return
        self.abort()
        self.reactor.turn()

    def pause_writing(self) -> None:
        """Stop sending, as asyncio's buffer is full; called by asyncio."""
        self.full = True

    def resume_writing(self) -> None:
        """Send further output, as asyncio's buffer has room again; called by asyncio."""
        self.full = False
        self.write_more()

    def resume_reading(self) -> None:
        if self.stream is None or self.reading or self.closed or self.paced or self.stalled:
            return
        if self.frozen or ((self.holds or self.waits) and not self.closing):
            return
        if self.due:
            self.call_turn()
            return
        self.reading = True
        self.stream.resume_reading()

    def pause_reading(self) -> None:
        if self.stream is not None and self.reading:
            self.reading = False
            if not self.stream.is_closing():
                self.stream.pause_reading()

    def send(self) -> bool:
        connection = self.connection
        if self.stream is None or self.closed:
            return False
        if self.frozen:
            self.send_unfinished()
            return False
        if connection.held_until != 0 and connection.is_held():
            self.wait_for_store()
            return False
        while connection.pending() and not self.full:
            source, start, end = connection.front()
            end = min(end, start + CHUNK_MAX)
            self.stream.write(bytes(source[start:end]))
            self.quiet_ticks = 0
            connection.advance(end - start)
        self.mid_frame = connection.pending() > 0
        if self.mid_frame:
            return False
        if self.closing:
            self.finish_close()
        elif self.watching:
            self.reactor.loop.call_soon(self.on_writable)
        return True

    def send_chunk(self, chunk: memoryview) -> int:
        if self.full:
            return 0
        if self.gone or self.stream.is_closing():
            self.unfinished = 0
            return 0
        self.stream.write(bytes(chunk))
        return len(chunk)

    def thaw(self) -> None:
        if self.gone:
            self.frozen = False
            self.abort()
            return
        Transport.thaw(self)

    def start_writing(self) -> None:
        if not self.full and not self.closed:
            self.reactor.loop.call_soon(self.on_writable)

    def stop_writing(self) -> None:
        self.writing = False

    def end_stream(self) -> None:
        if self.stream is not None:
            self.stream.close()

    def abort(self) -> None:
        if not self.closed and self.stream is not None:
            self.stream.abort() if self.connection.pending() else self.stream.close()
        Transport.abort(self)

    def close_socket(self) -> None:
        """Leave the socket to asyncio, which still uses its descriptor, once TLS is established."""
        if self.stream is None:
            Transport.close_socket(self)
