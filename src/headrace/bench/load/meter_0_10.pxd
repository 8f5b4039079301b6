# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.bench.load.meter cimport Histogram, Receiver, Sender
from headrace.wire.memory cimport cut, get16, get32, get64, put16, put32

cdef Py_ssize_t ACKS_SIZE
cdef Py_ssize_t STAMP_SIZE
cdef unsigned int ACCEPT_START
cdef unsigned int ACCEPT_HEAD
cdef unsigned int ACCEPT_FIELDS
cdef unsigned int COMPLETED_START
cdef unsigned int COMPLETED_HEAD
cdef unsigned int COMPLETED
cdef unsigned int TRANSFER

cdef class Sender010(Sender):
    cdef public unsigned int first_id

    cpdef Py_ssize_t feed(self, bytearray data, Py_ssize_t data_size, long long now) except -1
    @cython.locals(
        offset=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, ranges_end=Py_ssize_t,
        range_offset=Py_ssize_t, count=cython.longlong, last=cython.longlong,
    )
    cdef Py_ssize_t walk_0_10(
        self, const unsigned char* data, unsigned char* ring, Py_ssize_t data_size, long long now
    ) except -1

cdef class Receiver010(Receiver):
    cdef public unsigned int next_id
    cdef unsigned int first_unacked
    cdef public unsigned int channel

    cpdef Py_ssize_t feed(self, bytearray data, Py_ssize_t data_size, long long now) except -1
    @cython.locals(offset=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, kind=cython.uchar)
    cdef Py_ssize_t walk_0_10(
        self, const unsigned char* data, unsigned char* acks, Py_ssize_t data_size, long long now
    ) except -1
    @cython.locals(number=cython.uint, length=Py_ssize_t, i=Py_ssize_t, queue=cython.ulonglong)
    cdef int read_command(
        self, const unsigned char* data, Py_ssize_t offset, Py_ssize_t end
    ) except -1
    @cython.locals(offset=Py_ssize_t)
    cdef int ack_0_10(self, unsigned char* acks) except -1
