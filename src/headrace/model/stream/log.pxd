# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.queue.destination cimport Consumer
from headrace.model.counters cimport C_MESSAGE_OVERHEAD

cdef unsigned long long MARK_STEP

cdef class StreamLog:
    cdef public unsigned long long first_offset
    cdef public unsigned long long next_offset
    cdef public unsigned long long committed_offset
    cdef public long long max_length_bytes
    cdef public long long max_age_ms
    cdef public str name
    cdef public long long pinned_offset
    cdef public long long pin_bytes_max
    cdef public bint pin_failed
    cdef public long long size
    cdef public long long memory
    cdef public long long local_max_age_ms
    cdef public object on_arrival
    cdef list records
    cdef long long total
    cdef dict marks

    @cython.locals(offset=cython.ulonglong)
    cpdef unsigned long long append(
        self, bytes data, Py_ssize_t address_len, Py_ssize_t body_size, long long arrived_ms
    ) except? 0
    cpdef trim(self, long long now_ms)
    @cython.locals(limit=cython.longlong)
    cpdef bint must_keep(self, long long following, long long size) except -1
    cpdef long long bytes_from(self, unsigned long long offset) except -1
    cpdef list read(self, unsigned long long offset, Py_ssize_t bytes_max)
    @cython.locals(index=Py_ssize_t, data=bytes, address_len=Py_ssize_t)
    cpdef unsigned long long deliver_records(
        self, unsigned long long offset, unsigned long long end, Consumer consumer
    ) except? 0
    cpdef unsigned long long offset_at(self, long long timestamp_ms) except? 0
    cpdef long long measure(self, long long first, long long last) except -1
    @cython.locals(base=cython.longlong)
    cdef long long sum_sizes(self, long long first, long long last) except -1
    @cython.locals(low=cython.longlong, high=cython.longlong, middle=cython.longlong)
    cpdef long long find_end(self, long long first, long long last, long long bytes_max) except -1
    cpdef close(self)
    cpdef delete(self)
