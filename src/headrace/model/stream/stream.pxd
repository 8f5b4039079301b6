# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_KIND_MASK, Message, new_message
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.destination cimport Consumer
from headrace.model.stream.log cimport StreamLog

cdef Py_ssize_t READ_SIZE
cdef Py_ssize_t SCAN_SIZE
cdef Py_ssize_t SELECT_WEIGHT
cdef long long SCAN_PAUSE_MS

cdef class Stream(Queue):
    cdef public StreamLog log
    cdef dict cursors
    cdef dict fetched
    cdef dict fetched_size
    cdef dict readers
    cdef object blocks
    cdef object tracking
    cdef list no_local_readers

    cpdef long long message_count(self) except -1
    cpdef Consumer ready_consumer(self)
    @cython.locals(before=cython.longlong, offset=cython.ulonglong)
    cpdef int enqueue(self, Message message) except -1
    @cython.locals(consumer=Consumer)
    cdef record_own(self, unsigned long long publisher, unsigned long long offset)
    cpdef add_consumer(self, Consumer consumer)
    @cython.locals(log=StreamLog, before=cython.longlong)
    cpdef long long trim(self, long long now_ms) except -1
    @cython.locals(log=StreamLog, before=cython.longlong, bytes_in_all=cython.longlong)
    cpdef pin(self, long long offset, long long bytes_max)
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    cpdef drain(self)
    @cython.locals(batch=list, cursor=cython.ulonglong)
    cdef serve(self, Consumer consumer)
    @cython.locals(size=cython.longlong, entry=tuple)
    cdef fetch(self, Consumer consumer, list batch)
    @cython.locals(offset=cython.ulonglong, message=Message, data=bytes, address_len=Py_ssize_t,
                   body_size=Py_ssize_t)
    cdef deliver_batch(self, Consumer consumer, list batch)
    @cython.locals(log=StreamLog, batch=list, entries=list, scanned_size=Py_ssize_t,
                   end=cython.longlong)
    cdef serve_filtered(self, Consumer consumer)
    cpdef int settle(self, Message message) except -1
    cpdef requeue(self, Message message)
    cpdef release(self, Message message)
    cpdef discard(self, Message message)
    cpdef unpark(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)
    cpdef long long purge(self) except -1
    @cython.locals(count=cython.longlong)
    cpdef long long destroy(self) except -1
