# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_REDELIVERED, Message
from headrace.model.queue.ring cimport Ring
from headrace.model.counters cimport C_MESSAGE_OVERHEAD

cdef long long STALE_MIN
cdef int DEFAULT_HIGH_PRIORITY
cdef unsigned long long NO_SEQ

cdef class Cursor:
    cdef public bint is_browser
    cdef list seen
    cdef list ahead
    cdef long long looks

    cpdef skip_to(self, unsigned long long position)

cdef class ReadyList:
    cdef public int max_priority
    cdef public int priority_base
    cdef public long long count
    cdef public long long bytes
    cdef public long long stale_count
    cdef Ring ring
    cdef list rings
    cdef list requeued
    cdef public list cursors

    cdef int level(self, int priority) except -1
    @cython.locals(level=cython.int, ring=Ring, level_ring=Ring)
    cdef int push(self, Message message) except -1
    @cython.locals(ring=Ring, newest=Message)
    cdef bint is_newest(self, Message message) except -1
    @cython.locals(entry=tuple)
    cdef int reinsert(self, Message message) except -1
    @cython.locals(message=Message, ring=Ring)
    cdef Message pop(self)
    cdef Message pop_oldest(self)
    cdef int withdraw(self, Message message) except -1
    @cython.locals(message=Message, head=Message, ring=Ring, level=cython.int,
                   negative_level=cython.int, seq=cython.ulonglong)
    cdef Message pop_by_priority(self)
    @cython.locals(message=Message, ring=Ring, level=Py_ssize_t)
    cdef Message pop_lowest(self)
    cdef sweep(self)
    cdef bint is_gone(self, Message message) except -1
    cdef bint is_stale(self, Message message) except -1
    @cython.locals(level=cython.int, ring=Ring, index=Py_ssize_t)
    cdef bint is_listed(self, Message message) except -1
    @cython.locals(message=Message, fresh=Ring)
    cdef Ring copy_without_stale(self, Ring ring)
    cdef int sweep_if_stale(self) except -1
    cdef int on_removal(self, Message message) except -1
    cdef int clear(self) except -1
    @cython.locals(messages=list, limit=cython.ulonglong, level=Py_ssize_t, ring=Ring,
                   size=cython.longlong, index=Py_ssize_t, message=Message)
    cpdef list peek(
        self, unsigned long long first, unsigned long long last, long long bytes_max,
        list requeued,
    )
    cpdef list requeued_between(self, unsigned long long first, unsigned long long last)
    @cython.locals(ring=Ring, seq=cython.ulonglong)
    cpdef unsigned long long first_position(self, unsigned long long first) except? 0
    @cython.locals(ring=Ring, step=Py_ssize_t, index=Py_ssize_t)
    cpdef list split_positions(self, Py_ssize_t parts)
    cpdef Cursor new_cursor(self, bint is_browser)
    cdef int watch(self, Cursor cursor) except -1
    cdef int unwatch(self, Cursor cursor) except -1
    @cython.locals(ahead=list, level=cython.int, seen=cython.ulonglong, candidate=Message, ring=Ring,
                   index=Py_ssize_t, message=Message, negative_level=cython.int,
                   seq=cython.ulonglong, ready=cython.bint, unseen=cython.bint)
    cdef Message peek_unseen(self, Cursor cursor)
    @cython.locals(level=cython.int)
    cdef int pass_over(self, Cursor cursor, Message message) except -1
    @cython.locals(size=cython.longlong, message=Message)
    cpdef list read_unseen(self, Cursor cursor, unsigned long long end, long long bytes_max)
    @cython.locals(cursor=Cursor)
    cdef int notify_cursors(self, tuple entry) except -1
    cdef int add_ahead(self, Cursor cursor, tuple entry) except -1
