# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.queue.queue cimport Queue
from headrace.model.tallies cimport ExchangeTally

@cython.final
cdef class Route:
    cdef public bytes key
    cdef public tuple queues
    cdef public Py_ssize_t count
    cdef public unsigned long long generation
    cdef public bytes queue_ids
    cdef public bint durable
    cdef public bint keeps_transient
    cdef public bint is_uncommon
    cdef public bint is_served_by_broker
    cdef public object interception
    cdef public ExchangeTally tally

@cython.locals(queue=Queue)
cpdef bint survives_crash(tuple queues, bint persistent) except -1
