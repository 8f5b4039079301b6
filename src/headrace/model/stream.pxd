# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_KIND_MASK, Message, new_message
from headrace.model.queue cimport Queue
from headrace.model.served cimport Consumer
from headrace.model.tally cimport C_MESSAGE_OVERHEAD

cdef Py_ssize_t READ_OCTETS_MAX
cdef Py_ssize_t SCAN_OCTETS_MAX
cdef Py_ssize_t SELECT_WEIGHT
cdef long long SCAN_PAUSE_MS
cdef unsigned long long MARK_STEP

cdef class StreamLog:
    cdef public unsigned long long first_offset
    cdef public unsigned long long next_offset
    cdef public unsigned long long committed_offset
    cdef public long long max_length_bytes
    cdef public long long max_age_ms
    cdef public str name
    cdef public long long pinned_offset
    cdef public long long pin_octets_max
    cdef public bint pin_failed
    cdef public long long octets
    cdef public long long held
    cdef list records
    cdef long long total
    cdef dict marks

    @cython.locals(offset=cython.ulonglong)
    cpdef unsigned long long append(
        self, bytes data, Py_ssize_t address_len, Py_ssize_t body_size, long long arrived_ms
    ) except? 0
    cpdef trim(self, long long now_ms)
    @cython.locals(limit=cython.longlong)
    cpdef bint holds_back(self, long long following, long long octets) except -1
    cpdef long long octets_from(self, unsigned long long offset) except -1
    cpdef list read(self, unsigned long long offset, Py_ssize_t octets_max)
    @cython.locals(at=Py_ssize_t, data=bytes, address_len=Py_ssize_t)
    cpdef unsigned long long pour(
        self, unsigned long long offset, unsigned long long end, Consumer consumer
    ) except? 0
    cpdef unsigned long long offset_at(self, long long timestamp_ms) except? 0
    cpdef long long measure(self, long long first, long long last) except -1
    @cython.locals(base=cython.longlong)
    cdef long long span(self, long long first, long long last) except -1
    @cython.locals(lo=cython.longlong, hi=cython.longlong, middle=cython.longlong)
    cpdef long long within(self, long long first, long long last, long long octets_max) except -1
    cpdef close(self)
    cpdef delete(self)

cdef class Stream(Queue):
    cdef public StreamLog log
    cdef dict cursors
    cdef dict fetched
    cdef dict readings
    cdef object blocks
    cdef object tracking
    cdef list choosy

    cpdef long long message_count(self) except -1
    cpdef Consumer taker(self)
    @cython.locals(before=cython.longlong, offset=cython.ulonglong)
    cpdef int offer(self, Message message) except -1
    @cython.locals(consumer=Consumer)
    cdef note_own(self, unsigned long long publisher, unsigned long long offset)
    cpdef add_consumer(self, Consumer consumer)
    @cython.locals(log=StreamLog, before=cython.longlong)
    cpdef long long trim(self, long long now_ms) except -1
    @cython.locals(log=StreamLog, before=cython.longlong)
    cpdef pin(self, long long offset, long long octets_max)
    cpdef admit(self, Message message, bint promised=*)
    cpdef drain(self)
    @cython.locals(batch=list, cursor=cython.ulonglong)
    cdef serve(self, Consumer consumer)
    @cython.locals(offset=cython.ulonglong, message=Message, data=bytes, address_len=Py_ssize_t,
                   body_size=Py_ssize_t)
    cdef hand_out(self, Consumer consumer, list batch)
    @cython.locals(log=StreamLog, batch=list, entries=list, looked=Py_ssize_t,
                   end=cython.longlong)
    cdef serve_reading(self, Consumer consumer)
    cpdef int settle(self, Message message) except -1
    cpdef requeue(self, Message message)
    cpdef release(self, Message message)
    cpdef discard(self, Message message)
    cpdef unpark(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)
    cpdef long long purge(self) except -1
    @cython.locals(count=cython.longlong)
    cpdef long long destroy(self) except -1
