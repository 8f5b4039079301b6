# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.queue_kinds.inspecting cimport InspectingQueue
from headrace.model.message cimport C_GONE, Message

cdef class LastValueQueue(InspectingQueue):
    cdef public str key
    cdef public dict alike
    cdef public dict keys

    cpdef int enqueue(self, Message message) except -1
    cpdef enqueue_in_place(self, Message message, bint promised=*)
    cpdef restore(self, Message message, long long arrived_ms)
    @cython.locals(alike=dict)
    cpdef bint restore_unacked(self, Message message) except -1
    @cython.locals(older=Message, refused=cython.bint)
    cdef bint has_room(self, Message message) except -1
    cdef object message_key(self, Message message)
    @cython.locals(alike=dict, message=Message)
    cdef Message newest(self, object key)
    @cython.locals(newest=Message, alike=dict)
    cdef bint claim(self, Message message) except -1
    cdef replace(self, Message message)
    cdef supersede(self, Message message)
    cdef int reinsert(self, Message message) except -1
    cdef bint is_ready(self, Message message) except -1
    @cython.locals(alike=dict)
    cpdef remove(self, Message message)
