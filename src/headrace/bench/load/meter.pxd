# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport cut, get32, get64, put16, put32, put64

cdef Py_ssize_t STAMP_SIZE
cdef Py_ssize_t ACK_SIZE
cdef unsigned long long SEQUENCE_MASK
cdef unsigned int DELIVER
cdef unsigned int ACK
cdef unsigned int NACK

@cython.final
cdef class Histogram:
    cdef unsigned long long[::1] counts
    cdef readonly unsigned long long total
    cdef readonly long long largest

    cpdef int add(self, long long value, unsigned long long times) except -1
    @cython.locals(rank=cython.longlong, cumulative=cython.longlong, i=cython.int)
    cpdef double percentile(self, double share) except -1

@cython.locals(exponent=cython.int, remainder=cython.longlong)
cdef Py_ssize_t find_bucket(long long value) except -1

cdef class Sender:
    cdef unsigned long long number
    cdef readonly bytearray buffer
    cdef unsigned long long[::1] ends
    cdef unsigned long long[::1] bodies
    cdef unsigned long long[::1] targets
    cdef unsigned long long[::1] fans
    cdef Py_ssize_t size
    cdef unsigned long long[::1] seqs
    cdef long long window
    cdef bytearray ring
    cdef Py_ssize_t frame_max
    cdef Py_ssize_t cursor
    cdef readonly long long sent
    cdef readonly long long expected
    cdef readonly long long confirmed
    cdef readonly long long nacked
    cdef long long settled_tag
    cdef public Py_ssize_t send_start
    cdef public Py_ssize_t send_end
    cdef public bint measuring
    cdef readonly Histogram latency
    cdef public list methods

    @cython.locals(window_free=cython.longlong, ring_free=cython.longlong)
    cpdef Py_ssize_t free_window(self) except -1
    cpdef Py_ssize_t fill(self, long long now, long long count_max, Py_ssize_t size_max) except -1
    @cython.locals(
        first=Py_ssize_t, start=Py_ssize_t, i=Py_ssize_t, offset=Py_ssize_t, target=Py_ssize_t,
        publisher=cython.ulonglong, seq=cython.ulonglong, ring_slots=cython.longlong,
    )
    cdef Py_ssize_t stamp(
        self, unsigned char* data, unsigned char* ring, long long now, long long count_max,
        Py_ssize_t size_max,
    ) except -1
    cpdef Py_ssize_t feed(self, bytearray data, Py_ssize_t data_size, long long now) except -1
    @cython.locals(
        offset=Py_ssize_t, length=Py_ssize_t, end=Py_ssize_t, method=cython.uint,
        tag=cython.ulonglong,
    )
    cdef Py_ssize_t walk_frames(
        self, const unsigned char* data, unsigned char* ring, Py_ssize_t data_size, long long now
    ) except -1
    @cython.locals(
        i=cython.longlong, offset=Py_ssize_t, ring_slots=cython.longlong, sent_at=cython.longlong,
    )
    cdef int confirm(
        self, unsigned char* ring, long long tag, int multiple, bint refused, long long now
    ) except -1

cdef class Receiver:
    cdef unsigned long long[::1] next_seqs
    cdef unsigned long long next_seqs_len
    cdef unsigned long long publishers
    cdef Histogram latency
    cdef long long ack_every
    cdef bint reports_gaps
    cdef Py_ssize_t frame_max
    cdef unsigned long long queue
    cdef unsigned long long tag
    cdef unsigned long long body_left
    cdef public long long received
    cdef public long long unacked
    cdef public bint measuring
    cdef long long group_time
    cdef unsigned long long group_count
    cdef public long long redelivered
    cdef readonly long long repeated
    cdef readonly long long out_of_order
    cdef public long long unstamped
    cdef bint at_body_start
    cdef dict missing
    cdef long long missing_ranges
    cdef public bytearray acks
    cdef public Py_ssize_t acks_len
    cdef public list methods

    cpdef Py_ssize_t feed(self, bytearray data, Py_ssize_t data_size, long long now) except -1
    @cython.locals(offset=Py_ssize_t, length=Py_ssize_t, end=Py_ssize_t, kind=cython.uchar)
    cdef Py_ssize_t walk_frames(
        self, const unsigned char* data, unsigned char* acks, Py_ssize_t data_size, long long now
    ) except -1
    @cython.locals(tag_len=Py_ssize_t, i=Py_ssize_t, queue=cython.ulonglong)
    cdef int read_method(
        self, const unsigned char* data, Py_ssize_t offset, Py_ssize_t length
    ) except -1
    @cython.locals(
        publisher=cython.ulonglong, seq=cython.ulonglong, index=Py_ssize_t,
        next_seq=cython.ulonglong,
    )
    cdef int check(self, unsigned long long stamp, long long sent_at, long long now) except -1
    cdef int count_group(self, long long now) except -1
    cdef int finish(self, unsigned char* acks) except -1
    @cython.locals(offset=Py_ssize_t)
    cdef int ack(self, unsigned char* acks) except -1
