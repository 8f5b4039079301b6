# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_REDELIVERED, Message
from headrace.model.queue.ring cimport Ring
from headrace.model.counters cimport C_MESSAGE_OVERHEAD, Counters

cdef long long STALE_MIN
cdef int DEFAULT_HIGH_PRIORITY

cdef class Places:
    cdef public Counters counters
    cdef public int max_priority
    cdef public int priority_base
    cdef public long long ready_count
    cdef public long long ready_bytes
    cdef public long long stale_count
    cdef Ring ring
    cdef list rings
    cdef list returned
    cdef public list browsers
    cdef list seekers
    cdef public bint waking

    cdef int level(self, int priority) except -1
    @cython.locals(level=cython.int, ring=Ring)
    cdef int push(self, Message message) except -1
    cdef relieve(self, Message message)
    cpdef wake(self)
    @cython.locals(ring=Ring, last=Message)
    cdef bint is_newest(self, Message message) except -1
    @cython.locals(entry=tuple)
    cdef reinsert(self, Message message)
    cdef notify_cursors(self, tuple entry)
    @cython.locals(message=Message, ring=Ring)
    cdef Message next_ready(self)
    @cython.locals(message=Message, first=Message, ring=Ring, level=cython.int, back=cython.int, seq=cython.ulonglong)
    cdef Message next_by_rank(self)
    cdef sweep(self)
    cdef bint is_stale(self, Message message) except -1
    @cython.locals(level=cython.int, ring=Ring, at=Py_ssize_t)
    cdef bint is_listed(self, Message message) except -1
    @cython.locals(message=Message, fresh=Ring)
    cdef Ring swept(self, Ring ring)
    @cython.locals(found=list, limit=cython.ulonglong, level=Py_ssize_t, ring=Ring,
                   octets=cython.longlong, at=Py_ssize_t, message=Message)
    cpdef list peek(
        self, unsigned long long first, unsigned long long last, long long octets_max,
        list returned,
    )
    cpdef list returned_within(self, unsigned long long first, unsigned long long last)
    @cython.locals(first=cython.ulonglong, ring=Ring, seq=cython.ulonglong)
    cpdef unsigned long long position_of_first(self) except? 0
    @cython.locals(ring=Ring, step=Py_ssize_t, at=Py_ssize_t)
    cpdef list positions(self, Py_ssize_t parts)
