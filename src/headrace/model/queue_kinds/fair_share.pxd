# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue.ready_list cimport STALE_MIN, Cursor
from headrace.model.queue_kinds.ordered cimport OrderedList

@cython.final
cdef class FairShareCursor(Cursor):
    cdef list lines
    cdef int current
    cdef long long served

cdef class FairShareList(OrderedList):
    cdef int level_count
    cdef list shares
    cdef list lines
    cdef int current
    cdef long long served

    cdef int line_up(self, Message message) except -1
    @cython.locals(share=cython.longlong, line=list, tries=cython.int, message=Message)
    cdef Message next_in_line(self)
    @cython.locals(own=FairShareCursor, level=cython.int)
    cdef int push(self, Message message) except -1
    @cython.locals(own=FairShareCursor, level=cython.int)
    cdef int notify_cursors(self, tuple entry) except -1
    @cython.locals(line=list)
    cdef int add_unseen(self, FairShareCursor cursor, int level, Message message) except -1
    cpdef Cursor new_cursor(self, bint browses)
    @cython.locals(own=FairShareCursor, current=cython.int, served=cython.longlong,
                   tries=cython.int, share=cython.longlong, message=Message)
    cdef Message following(self, Cursor cursor)
    @cython.locals(line=list, seen=cython.ulonglong, message=Message)
    cdef Message first_unseen(self, FairShareCursor cursor, int level)
    @cython.locals(own=FairShareCursor, level=cython.int, line=list, share=cython.longlong)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    @cython.locals(level=cython.int)
    cdef sweep(self)
    cdef int clear_line(self) except -1
