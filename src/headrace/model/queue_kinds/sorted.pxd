# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue.ready_list cimport STALE_MIN, Cursor
from headrace.model.queue_kinds.header_reader cimport HeaderReader
from headrace.model.queue_kinds.ordered cimport OrderedList

@cython.final
cdef class SortedCursor(Cursor):
    cdef list heap
    cdef tuple last_shown

cdef class SortedList(OrderedList):
    cdef HeaderReader reader
    cdef public str key
    cdef list heap
    cdef dict values

    cdef int level(self, int priority) except -1
    cdef int push_heap(self, Message message) except -1
    @cython.locals(heap=list, message=Message)
    cdef Message pop_heap(self)
    cdef int push(self, Message message) except -1
    cdef int notify_cursors(self, tuple entry) except -1
    @cython.locals(sorted_cursor=SortedCursor, entry=tuple, last_shown=tuple, unseen=cython.bint)
    cdef int announce(self, Message message, bint fresh) except -1
    cdef int add_unseen(self, SortedCursor cursor, tuple entry) except -1
    cpdef Cursor new_cursor(self, bint is_browser)
    @cython.locals(sorted_cursor=SortedCursor, heap=list, message=Message,
                   first=cython.ulonglong)
    cdef Message peek_unseen(self, Cursor cursor)
    @cython.locals(sorted_cursor=SortedCursor, heap=list, shown=tuple)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    cdef int on_removal(self, Message message) except -1
    cdef sweep(self)
    cdef int clear_heap(self) except -1
