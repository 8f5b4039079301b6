# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue.ready_list cimport STALE_MIN, Cursor
from headrace.model.queue_kinds.header_reader cimport HeaderReader
from headrace.model.queue_kinds.ordered cimport OrderedList

@cython.final
cdef class SortedCursor(Cursor):
    cdef list line
    cdef tuple reach

cdef class SortedList(OrderedList):
    cdef HeaderReader reader
    cdef public str key
    cdef list line
    cdef dict values

    cdef int level(self, int priority) except -1
    cdef int line_up(self, Message message) except -1
    @cython.locals(line=list, message=Message)
    cdef Message next_in_line(self)
    cdef int push(self, Message message) except -1
    cdef int notify_cursors(self, tuple entry) except -1
    @cython.locals(own=SortedCursor, entry=tuple, unseen=cython.bint)
    cdef int announce(self, Message message, bint fresh) except -1
    cdef int add_unseen(self, SortedCursor cursor, tuple entry) except -1
    cpdef Cursor new_cursor(self, bint browses)
    @cython.locals(own=SortedCursor, line=list, message=Message, first=cython.ulonglong)
    cdef Message following(self, Cursor cursor)
    @cython.locals(own=SortedCursor, line=list, reach=tuple)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    cdef int forget(self, Message message) except -1
    cdef sweep(self)
    cdef int clear_line(self) except -1
