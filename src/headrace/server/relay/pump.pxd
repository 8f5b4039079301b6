# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport get32, put32

cdef int CLOSE, CREDIT, DATA, END, FAILED, READY, SECURED, READS_MAX
cdef Py_ssize_t BACKLOG_MAX, CREDIT_AT, HEADER_SIZE, PIECE_MAX, READ_SIZE, SIZE_MASK, WINDOW
cdef long IN, OUT

@cython.final
cdef class Client:
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
    cdef public bytearray out
    cdef public object view
    cdef public Py_ssize_t head
    cdef public Py_ssize_t tail
    cdef public bint writing
    cdef public bytearray buffer
    cdef public object input
    cdef public Py_ssize_t have
    cdef public list eager
    cdef public object lingering
    cdef public bint finished

    @cython.locals(fd=cython.int, events=cython.long, client=Client)
    cpdef step(self, double timeout_s)
    cdef serve(self, Client client, long events)
    @cython.locals(n=Py_ssize_t, position=Py_ssize_t, _=cython.int)
    cdef read(self, Client client)
    cdef deliver(self, Client client, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(n=Py_ssize_t)
    cdef write(self, Client client)
    @cython.locals(total=Py_ssize_t, sent=Py_ssize_t)
    cdef Py_ssize_t send(self, Client client, object chunk) except -1
    @cython.locals(events=cython.long)
    cdef watch(self, Client client)
    cdef leave(self, Client client)
    cdef end(self, Client client)
    cdef close(self, Client client)
    @cython.locals(client=Client)
    cdef end_lingering(self)
    cdef handshake(self, Client client)
    cdef fail(self, Client client, str reason)
    @cython.locals(offset=Py_ssize_t)
    cdef put_facts(self, Client client, int kind, bytes data)
    @cython.locals(position=Py_ssize_t)
    cdef Py_ssize_t begin(self, unsigned int number, int kind, Py_ssize_t size) except -1
    @cython.locals(used=Py_ssize_t, capacity=Py_ssize_t, out=bytearray)
    cdef grow(self, Py_ssize_t size)
    cdef bint make_room(self) except -1
    @cython.locals(sent=Py_ssize_t)
    cpdef flush(self)
    cdef serve_link(self, long events)
    @cython.locals(n=Py_ssize_t, end=Py_ssize_t, position=Py_ssize_t, stop=Py_ssize_t, word=cython.uint, client=Client)
    cdef read_link(self)
    @cython.locals(client=Client)
    cdef Client find(self, unsigned int number)
    cdef handle(self, Client client, int kind, Py_ssize_t start, Py_ssize_t end)
    cpdef read_control(self)
    cdef use_files(self, bytes message)
    @cython.locals(client=Client)
    cdef open(self, object sock, unsigned int number, bint secure, unsigned int files)
    @cython.locals(client=Client, polled=Client)
    cpdef finish(self)
