# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue.ready_list cimport STALE_MIN, Cursor
from headrace.model.queue_kinds.ordered cimport OrderedList

@cython.final
cdef class FairShareCursor(Cursor):
    cdef list heaps
    cdef int current
    cdef long long served

cdef class FairShareList(OrderedList):
    cdef int level_count
    cdef list shares
    cdef list heaps
    cdef int current
    cdef long long served

    cdef int push_heap(self, Message message) except -1
    @cython.locals(share=cython.longlong, heap=list, tries=cython.int, message=Message)
    cdef Message pop_heap(self)
    @cython.locals(share_cursor=FairShareCursor, level=cython.int)
    cdef int push(self, Message message) except -1
    @cython.locals(share_cursor=FairShareCursor, level=cython.int)
    cdef int notify_cursors(self, tuple entry) except -1
    @cython.locals(heap=list)
    cdef int add_unseen(self, FairShareCursor cursor, int level, Message message) except -1
    cpdef Cursor new_cursor(self, bint is_browser)
    @cython.locals(share_cursor=FairShareCursor, current=cython.int, served=cython.longlong,
                   tries=cython.int, share=cython.longlong, message=Message)
    cdef Message peek_unseen(self, Cursor cursor)
    @cython.locals(heap=list, seen=cython.ulonglong, message=Message)
    cdef Message first_unseen(self, FairShareCursor cursor, int level)
    @cython.locals(share_cursor=FairShareCursor, level=cython.int, heap=list, share=cython.longlong)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    @cython.locals(level=cython.int)
    cdef sweep(self)
    cdef int clear_heap(self) except -1
