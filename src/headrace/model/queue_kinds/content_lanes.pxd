# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_KIND_FILE, Message
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.destination cimport Consumer
from headrace.model.queue.overflow cimport Overflow
from headrace.model.counters cimport C_MESSAGE_OVERHEAD

cdef class ContentClassQueue(Queue):
    cdef public Queue parent

    cpdef add_consumer(self, Consumer consumer)
    cpdef remove_consumer(self, Consumer consumer)

cdef class FileOverflow(Overflow):
    cdef int enforce(self, Queue queue, Message message) except -1


cdef class FileQueue(ContentClassQueue):
    cdef public object files

    cpdef add_reference(self, Message message)
    cpdef int enqueue(self, Message message) except -1
    cpdef dispatch_arrival(self, Consumer consumer, Message message)
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    cpdef restore(self, Message message, long long arrived_ms)
    cpdef bint restore_unacked(self, Message message) except -1
    cpdef bint find_body(self, Message message) except -1
    @cython.locals(data=bytes, is_present=cython.bint)
    cpdef remove(self, Message message)
    cdef long long weight(self, Message message) except -1
    cdef int page_out(self, Message message) except -1
    @cython.locals(limits=Overflow)
    cpdef bint is_full(self) except -1
    cpdef release_waiters(self)

cdef class PacketQueue(ContentClassQueue):
    cdef public unsigned long long discarded

    cdef int page_out(self, Message message) except -1
    @cython.locals(message=Message)
    cdef bint drop_lowest(self) except -1

cdef class PacketOverflow(Overflow):
    @cython.locals(packets=PacketQueue)
    cdef drop_head(self, Queue queue)
    cdef drop_head_in_batch(self, Queue queue)

cpdef Queue get_lane(Queue queue, int kind)
cpdef Queue home_queue(Queue queue)
