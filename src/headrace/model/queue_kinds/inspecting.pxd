# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_PAGED, Message
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.dispatch cimport Consumer

cdef long long LOOK_OVERHEAD

cdef class InspectingQueue(Queue):
    cdef public bint looks
    cdef public object later

    cpdef Consumer ready_consumer(self)
    cpdef bint has_ready_consumer(self) except -1
    cpdef bint would_reject(self, unsigned int body_size) except -1
    cdef long long weight(self, Message message) except -1
    @cython.locals(paged=cython.bint)
    cpdef object header(self, Message message, str name)
    cpdef int enqueue(self, Message message) except -1
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    cpdef restore(self, Message message, long long arrived_ms)
    cpdef bint postpone(self, Message message, long long arrived_ms) except -1
    cpdef long long purge(self) except -1
    cpdef retire(self)
    cpdef long long destroy(self) except -1
    cdef bint is_ready(self, Message message) except -1
