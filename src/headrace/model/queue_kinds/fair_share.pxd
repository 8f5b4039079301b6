# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue_kinds.ordered cimport OrderedQueue
from headrace.model.queue.ready_list cimport STALE_MIN
from headrace.model.queue.dispatch cimport Consumer, Cursor

@cython.final
cdef class FairCursor(Cursor):
    cdef list lines
    cdef int turn_of
    cdef long long had

cdef class FairShareQueue(OrderedQueue):
    cdef int level_count
    cdef list shares
    cdef list lines
    cdef int turn_of
    cdef long long had

    cdef line_up(self, Message message)
    @cython.locals(share=cython.longlong, line=list, tries=cython.int, message=Message)
    cdef Message next_in_line(self)
    @cython.locals(cursor=FairCursor, level=cython.int)
    cdef int push(self, Message message) except -1
    @cython.locals(cursor=FairCursor, level=cython.int)
    cdef notify_cursors(self, tuple entry)
    @cython.locals(line=list)
    cdef list_ahead(self, FairCursor cursor, int level, Message message)
    cpdef Cursor new_cursor(self, Consumer consumer)
    @cython.locals(own=FairCursor, turn=cython.int, had=cython.longlong, tries=cython.int,
                   share=cython.longlong, message=Message)
    cdef Message following(self, Cursor cursor)
    @cython.locals(line=list, seen=cython.ulonglong, message=Message)
    cdef Message first_of(self, FairCursor cursor, int level)
    @cython.locals(own=FairCursor, level=cython.int, line=list, share=cython.longlong)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    @cython.locals(level=cython.int)
    cdef sweep(self)
    cdef clear_line(self)
