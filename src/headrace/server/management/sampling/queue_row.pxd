# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.counters cimport C_MESSAGE_OVERHEAD, Counters
from headrace.model.queue.queue cimport Queue
from headrace.model.stream.stream cimport Stream
from headrace.model.tallies cimport QueueTally

cdef enum:
    C_SUMMED = 19
    C_OLDEST = 19
    C_UTILISATION = 20
    C_PLACES = 21
    C_WHOLE = 1000
    C_SHORTEST_MS = 1000
    C_UNKNOWN = -1

cdef class Numbers:
    cdef public long long queues
    cdef long long values[21]

    @cython.locals(at=cython.int)
    cpdef tuple part(self, int first, int last)

@cython.final
cdef class QueueRow(Numbers):
    cdef public unsigned long long number
    cdef public str vhost
    cdef public unsigned long long host
    cdef public unsigned long long run
    cdef public str policy
    cdef public str operator_policy
    cdef public unsigned long long born
    cdef public unsigned long long changed
    cdef public unsigned long long told
    cdef public long long looked_ms
    cdef public long long waited_ms

    cpdef begin(self, Queue queue)
    @cython.locals(at=cython.int)
    cpdef leave(self, Numbers sums)
    @cython.locals(at=cython.int, lane=Queue, differs=cython.bint, found=cython.longlong)
    cpdef bint refresh(
        self, Queue queue, Numbers sums, Numbers fresh, long long now_ms
    ) except -1
    @cython.locals(passed_ms=cython.longlong, waited_ms=cython.longlong,
                   waiting_ms=cython.longlong)
    cdef long long utilisation(self, Queue queue, long long now_ms) except? 0

@cython.locals(tally=QueueTally, ready=cython.longlong, held=cython.longlong,
               values="long long*")
cdef int gather(Queue queue, Numbers into) except -1
@cython.locals(counters=Counters, first=cython.ulonglong, found=list)
cdef long long oldest_ms(Queue queue) except? 0

@cython.final
cdef class Scan:
    cdef public unsigned long long run
    cdef public unsigned long long epoch
    cdef public long long now_ms
    cdef public list new
    cdef public list changed
    cdef Numbers fresh
    cdef Numbers sums

    @cython.locals(at=Py_ssize_t, queue=Queue, row=QueueRow)
    cpdef look(self, list queues, Py_ssize_t first, Py_ssize_t last)
