# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport Message
from headrace.model.queue.dead_letter_sender cimport DeadLetterSender
from headrace.model.queue.queue cimport Queue

cdef enum:
    C_DROP_HEAD = 0
    C_REJECT_DEAD_LETTER = 2
    C_RING_STRICT = 3
    C_SELF_DESTRUCT = 4
    C_TO_DISK = 5

cdef class Overflow:
    cdef public long long max_length
    cdef public long long max_length_bytes
    cdef public int policy
    cdef public bint counts_unacked

    @cython.locals(policy=cython.int, total=cython.longlong)
    cdef bint is_full_for(self, Queue queue, unsigned int body_size) except -1
    cpdef long long length(self, Queue queue) except -1
    cpdef long long bytes(self, Queue queue) except -1
    cdef bint exceeds(self, Queue queue, int count, long long body_bytes) except -1
    @cython.locals(sender=DeadLetterSender, begun=cython.bint)
    cdef reject(self, Queue queue, Message message)
    @cython.locals(policy=cython.int)
    cdef int enforce(self, Queue queue, Message message) except -1
    @cython.locals(message=Message)
    cdef drop_head(self, Queue queue)
    @cython.locals(message=Message, sender=DeadLetterSender, batch=cython.bint)
    cdef drop_head_in_batch(self, Queue queue)
