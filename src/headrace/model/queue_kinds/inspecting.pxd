# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue.destination cimport Consumer
from headrace.model.queue.queue cimport Queue
from headrace.model.queue_kinds.header_reader cimport HeaderReader

cdef long long INSPECTION_OVERHEAD

cdef class InspectingQueue(Queue):
    cdef public bint is_inspecting
    cdef public HeaderReader reader
    cdef public object not_yet_valid

    cpdef set_up(self, dict arguments)
    cpdef Consumer ready_consumer(self)
    cpdef bint has_ready_consumer(self) except -1
    cpdef bint would_reject(self, unsigned int body_size) except -1
    cdef long long weight(self, Message message) except -1
    cpdef int enqueue(self, Message message) except -1
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    cpdef restore(self, Message message, long long arrived_ms)
    cpdef remove(self, Message message)
    cdef bint check_and_postpone(self, Message message) except -1
    cpdef bint postpone(self, Message message, long long arrived_ms) except -1
    cpdef long long held_count(self) except -1
    cpdef long long purge(self) except -1
    cpdef retire(self)
    cpdef long long destroy(self) except -1
