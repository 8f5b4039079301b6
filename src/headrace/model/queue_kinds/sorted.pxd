# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue_kinds.ordered cimport OrderedQueue
from headrace.model.queue.dispatch cimport Consumer, Cursor

@cython.final
cdef class SortedCursor(Cursor):
    cdef tuple reach

cdef class SortedQueue(OrderedQueue):
    cdef public str key
    cdef list line
    cdef dict values

    cdef int level(self, int priority) except -1
    cdef line_up(self, Message message)
    @cython.locals(line=list, message=Message)
    cdef Message next_in_line(self)
    cdef int push(self, Message message) except -1
    cdef notify_cursors(self, tuple entry)
    @cython.locals(cursor=SortedCursor, entry=tuple)
    cdef announce(self, Message message, bint fresh)
    cpdef Cursor new_cursor(self, Consumer consumer)
    @cython.locals(ahead=list, message=Message, first=cython.ulonglong)
    cdef Message following(self, Cursor cursor)
    @cython.locals(own=SortedCursor, ahead=list, reach=tuple)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    cpdef remove(self, Message message)
    cdef sweep(self)
    cdef clear_line(self)
