# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_PAGED, Message
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.dispatch cimport Consumer

cdef long long LOOK_OVERHEAD

cdef class AttentiveQueue(Queue):
    cdef public bint looks
    cdef public object later

    cpdef Consumer taker(self)
    cpdef bint takes_at_once(self) except -1
    cpdef bint will_refuse(self, unsigned int body_size) except -1
    cdef long long weight(self, Message message) except -1
    @cython.locals(paged=cython.bint)
    cpdef object header(self, Message message, str name)
    cpdef int offer(self, Message message) except -1
    cpdef admit(self, Message message, bint promised=*)
    cpdef restore(self, Message message, long long arrived_ms)
    cpdef bint postpone(self, Message message, long long arrived_ms) except -1
    cpdef long long purge(self) except -1
    cpdef retire(self)
    cpdef long long destroy(self) except -1
    cdef bint is_ready(self, Message message) except -1
