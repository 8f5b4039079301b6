# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.endpoint cimport Endpoint
from headrace.server.net.transport cimport Reactor, Transport
from headrace.server.net.watched_socket cimport WatchedSocket
from headrace.server.relay.output cimport FrameOutput
from headrace.wire.memory cimport copy, cut, get32

cdef int CLOSE, CREDIT, DATA, END
cdef Py_ssize_t BACKLOG_MAX, CREDIT_AT, HEADER_SIZE, OUT_SIZE, PIECE_MAX, READ_SIZE, SIZE_MASK, WINDOW

cdef class RelayLink(WatchedSocket):
    cdef public Reactor reactor
    cdef public object sock
    cdef public object on_message
    cdef public object on_end
    cdef public dict streams
    cdef public bytearray buffer
    cdef public object view
    cdef public Py_ssize_t partial_size
    cdef public FrameOutput output
    cdef public list waiting
    cdef public bint closed

    @cython.locals(n=Py_ssize_t, end=Py_ssize_t, position=Py_ssize_t, stop=Py_ssize_t, word=cython.uint,
                   number=cython.uint)
    cpdef read(self)
    @cython.locals(transport=RelayedTransport)
    cdef handle_frame(self, unsigned int number, int kind, Py_ssize_t start, Py_ssize_t end)
    cdef bint is_full(self) noexcept
    @cython.locals(offset=Py_ssize_t, data=bytes, buffer=bytearray)
    cdef put_data(self, unsigned int number, object source, Py_ssize_t start, Py_ssize_t end)
    cpdef flush(self)
    cpdef write_more(self)
    cpdef abort(self)

cdef class RelayedTransport(Transport):
    cdef public RelayLink link
    cdef public unsigned int number
    cdef public Py_ssize_t credit
    cdef public Py_ssize_t uncredited
    cdef public long long bytes_in
    cdef public long long bytes_out
    cdef public bint has_new_input
    cdef public bint gone
    cdef public bint wake_scheduled
    cdef public bint queued
    cdef public long files
    cdef public object on_failure

    @cython.locals(n=Py_ssize_t, have=Py_ssize_t, unhandled=bytes, more=bytes, reactor=Reactor)
    cdef receive(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end)
    cdef give_credit(self)
    cdef on_client_end(self)
    cdef bint has_room(self) noexcept
    @cython.locals(n=Py_ssize_t)
    cdef write_data(self, object source, Py_ssize_t start, Py_ssize_t end)
    cdef add_credit(self, Py_ssize_t size)
    cpdef set_tls(self, object stream, object certificate)
