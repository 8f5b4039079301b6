# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.counters cimport Counters
from headrace.model.message cimport C_GONE, Message
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.ready_list cimport STALE_MIN

cdef long long EXPIRE_MAX

# Py_ssize_t, for Cython writes -1LLLL for a long long where modules cimport each other.
@cython.final
cdef class Expiry:
    cdef list deadlines

    cdef bint add(self, Message message, long long ready_count) except -1
    @cython.locals(message=Message, by_seq=dict, entry=tuple, previous=tuple)
    cdef sweep(self)
    @cython.locals(message=Message, deadline_ms=cython.longlong)
    cdef Py_ssize_t first_ms(self) except -1
    @cython.locals(message=Message, budget=cython.longlong, limited=cython.bint, counters=Counters,
                   batch=cython.bint, deadline_ms=cython.longlong, is_over_budget=cython.bint)
    cdef Py_ssize_t expire(self, Queue queue, long long now_ms) except -1
