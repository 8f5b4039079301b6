# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, Message
from headrace.model.queue.ready_list cimport STALE_MIN, ReadyList
from headrace.model.queue.ring cimport Ring

cdef class OrderedList(ReadyList):
    cdef long long oldest_popped

    cdef int push_heap(self, Message message) except -1
    cdef Message pop_heap(self)
    cdef int clear_heap(self) except -1
    cdef int push(self, Message message) except -1
    @cython.locals(message=Message)
    cdef Message pop(self)
    cdef Message pop_oldest(self)
    cdef sweep(self)
    cdef int count_departure(self, Message message) except -1
    @cython.locals(first=Message)
    cdef trim(self, Ring ring)
    @cython.locals(entry=tuple)
    cdef int reinsert(self, Message message) except -1
    cdef int clear(self) except -1
    cdef bint is_ready(self, Message message) except -1
