# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.queue_kinds.inspecting cimport InspectingQueue
from headrace.model.message cimport Message
from headrace.model.queue.ready_list cimport STALE_MIN
from headrace.model.queue.ring cimport Ring

cdef class OrderedQueue(InspectingQueue):
    cdef public bint by_place

    cdef line_up(self, Message message)
    cdef Message next_in_line(self)
    cdef clear_line(self)
    cdef int push(self, Message message) except -1
    @cython.locals(message=Message)
    cdef Message next_ready(self)
    @cython.locals(first=Message)
    cdef trim(self, Ring ring)
    @cython.locals(entry=tuple)
    cdef reinsert(self, Message message)
    cdef drop_head(self)
    cdef int forget_ready(self, bint settle) except -1
    @cython.locals(left=cython.int)
    cpdef int orphan_some(self, int most) except -1
