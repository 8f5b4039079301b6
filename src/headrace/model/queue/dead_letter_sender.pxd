# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_GONE, C_PAGED, C_SCRATCH, Message
from headrace.model.queue.queue cimport Queue

@cython.final
cdef class DeadLetterSender:
    cdef Queue queue

    cdef bint has_exchange(self) except -1
    cdef bint begin(self, Message message) except -1
    cdef bint begin_batch(self) except -1
    cdef int end(self) except -1
    cdef bint defer(self, Message message, str reason) except -1
    cdef int dead_letter(self, Message message, str reason) except -1
    cdef bint retry(self, Message message, str reason) except -1
    cdef count_arrival(self)
    @cython.locals(arrived=cython.bint, must_load=cython.bint)
    cdef bint publish(self, Message message, str reason) except -1
    cdef int send_unconvertible(self, Message message, str text) except -1
    cdef int orphan(self, Message message) except -1
    @cython.locals(message=Message, batch=cython.bint)
    cdef int orphan_some(self, int maximum) except -1
