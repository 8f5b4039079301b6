# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.server.relay.output cimport FrameOutput
from headrace.wire.memory cimport get32

cdef int CLOSE, CREDIT, DATA, END, FAILED, READY, SECURED, READS_MAX
cdef Py_ssize_t BACKLOG_MAX, CREDIT_AT, HEADER_SIZE, PIECE_MAX, READ_SIZE, SIZE_MASK, WINDOW
cdef long IN, OUT

@cython.final
cdef class RelayedClient:
    cdef public object sock
    cdef public int fd
    cdef public unsigned int number
    cdef public bint secure
    cdef public unsigned int files
    cdef public bint handshaking
    cdef public long events
    cdef public Py_ssize_t credit
    cdef public bytearray out
    cdef public Py_ssize_t uncredited
    cdef public bint ending
    cdef public bint closing
    cdef public bint ended
    cdef public bint closed

@cython.final
cdef class Pump:
    cdef public object link
    cdef public object control
    cdef public object make_context
    cdef public object context
    cdef public str context_error
    cdef public object epoll
    cdef public int link_fd
    cdef public int control_fd
    cdef public dict by_fd
    cdef public dict by_number
    cdef public FrameOutput output
    cdef public bint writing
    cdef public bytearray buffer
    cdef public object input
    cdef public Py_ssize_t partial_size
    cdef public list eager
    cdef public object lingering
    cdef public bint finished

    @cython.locals(fd=cython.int, events=cython.long, client=RelayedClient)
    cpdef step(self, double timeout_s)
    cdef serve_client(self, RelayedClient client, long events)
    @cython.locals(n=Py_ssize_t, position=Py_ssize_t, _=cython.int)
    cdef read_client(self, RelayedClient client)
    cdef deliver(self, RelayedClient client, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(n=Py_ssize_t)
    cdef write_client(self, RelayedClient client)
    @cython.locals(total=Py_ssize_t, sent=Py_ssize_t)
    cdef Py_ssize_t send_to_client(self, RelayedClient client, object chunk) except -1
    @cython.locals(events=cython.long)
    cdef watch_client(self, RelayedClient client)
    cdef disconnect(self, RelayedClient client)
    cdef end_stream(self, RelayedClient client)
    cdef close_client(self, RelayedClient client)
    @cython.locals(client=RelayedClient)
    cdef end_lingering(self)
    cdef continue_handshake(self, RelayedClient client)
    cdef fail_handshake(self, RelayedClient client, str reason)
    @cython.locals(offset=Py_ssize_t)
    cdef put_facts(self, RelayedClient client, int kind, bytes data)
    cdef bint make_room(self) except -1
    @cython.locals(full=cython.bint)
    cpdef flush(self)
    cdef serve_link(self, long events)
    @cython.locals(n=Py_ssize_t, end=Py_ssize_t, position=Py_ssize_t, stop=Py_ssize_t, word=cython.uint, client=RelayedClient)
    cdef read_link(self)
    @cython.locals(client=RelayedClient)
    cdef RelayedClient find_client(self, unsigned int number)
    cdef handle_frame(self, RelayedClient client, int kind, Py_ssize_t start, Py_ssize_t end)
    cpdef read_control(self)
    cdef use_files(self, bytes message)
    @cython.locals(client=RelayedClient)
    cdef open_client(self, object sock, unsigned int number, bint secure, unsigned int files)
    @cython.locals(client=RelayedClient, polled=RelayedClient)
    cpdef finish(self)
