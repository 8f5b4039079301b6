# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.endpoint cimport Endpoint
from headrace.server.net.transport cimport Reactor, Transport
from headrace.server.net.watched cimport Watched
from headrace.wire.memory cimport copy, cut, get32, put32

cdef int CLOSE, CREDIT, DATA, END
cdef Py_ssize_t BACKLOG_MAX, CREDIT_AT, HEADER_SIZE, OUT_SIZE, PIECE_MAX, READ_SIZE, SIZE_MASK, WINDOW

cdef class Link(Watched):
    cdef public Reactor reactor
    cdef public object sock
    cdef public object on_message
    cdef public object ended
    cdef public dict streams
    cdef public bytearray buffer
    cdef public object view
    cdef public Py_ssize_t have
    cdef public bytearray out
    cdef public Py_ssize_t head
    cdef public Py_ssize_t tail
    cdef public list waiting
    cdef public bint closed

    @cython.locals(n=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, word=cython.uint)
    cpdef read(self)
    @cython.locals(transport=RelayedTransport)
    cdef handle(self, unsigned int number, int kind, Py_ssize_t lo, Py_ssize_t hi)
    cdef bint is_full(self) noexcept
    @cython.locals(at=Py_ssize_t, octets=bytes, buffer=bytearray)
    cdef put(self, unsigned int number, object source, Py_ssize_t lo, Py_ssize_t hi)
    cpdef put_number(self, unsigned int number, int kind, unsigned int value)
    @cython.locals(at=Py_ssize_t)
    cpdef Py_ssize_t begin(self, unsigned int number, int kind, Py_ssize_t size) except -1
    @cython.locals(used=Py_ssize_t, capacity=Py_ssize_t, out=bytearray)
    cdef grow(self, Py_ssize_t size)
    @cython.locals(sent=Py_ssize_t)
    cpdef flush(self)
    cpdef write_more(self)
    cpdef lost(self)

cdef class RelayedTransport(Transport):
    cdef public Link link
    cdef public unsigned int number
    cdef public Py_ssize_t credit
    cdef public Py_ssize_t taken
    cdef public long long octets_in
    cdef public long long octets_out
    cdef public bint fresh
    cdef public bint gone
    cdef public bint woken
    cdef public bint queued
    cdef public long files
    cdef public object failed

    @cython.locals(n=Py_ssize_t, have=Py_ssize_t, rest=bytes, more=bytes, reactor=Reactor)
    cdef arrive(self, bytearray buffer, Py_ssize_t lo, Py_ssize_t hi)
    cdef give_credit(self)
    cdef leave(self)
    cdef bint has_room(self) noexcept
    @cython.locals(n=Py_ssize_t)
    cdef pass_on(self, object source, Py_ssize_t lo, Py_ssize_t hi)
    cdef credited(self, Py_ssize_t size)
    cpdef secured(self, object stream, object certificate)
