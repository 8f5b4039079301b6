# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.ordered cimport OrderedQueue

cdef class FairShareQueue(OrderedQueue):
    cdef int level_count
    cdef list shares
    cdef list lines
    cdef int turn_of
    cdef long long had

    cdef line_up(self, Message message)
    @cython.locals(share=cython.longlong, line=list, tries=cython.int, message=Message)
    cdef Message next_in_line(self)
    @cython.locals(level=cython.int)
    cdef sweep(self)
    cdef clear_line(self)
