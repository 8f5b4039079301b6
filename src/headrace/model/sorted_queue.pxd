# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.ordered cimport OrderedQueue

cdef class SortedQueue(OrderedQueue):
    cdef public str key
    cdef list line
    cdef dict values

    cdef line_up(self, Message message)
    @cython.locals(line=list, message=Message)
    cdef Message next_in_line(self)
    cpdef leave(self, Message message)
    cdef sweep(self)
    cdef clear_line(self)
