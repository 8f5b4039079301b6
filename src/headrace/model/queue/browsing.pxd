# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_PAGED, Message
from headrace.model.queue.destination cimport (
    C_ACCEPTED, C_NEVER, C_NO_ROOM, Consumer, ConsumerRound,
)
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.ready_list cimport Cursor, ReadyList

cdef long long LOOKS_MAX
cdef long long PAGED_LOOKS
cdef long long LOOK_BYTES
cdef long long LOOK_PAUSE_MS

# Py_ssize_t, for Cython writes -1LLLL for a long long where modules cimport each other.
@cython.final
cdef class Browsing:
    cdef Queue queue
    cdef readonly list browsers
    cdef list filters
    cdef list resting
    cdef int closing

    cdef int clear(self) except -1
    cdef int wake(self) except -1
    cdef int add_filter(self, Consumer consumer) except -1
    cdef int remove_filter(self, Consumer consumer) except -1
    @cython.locals(queue=Queue, ready=ReadyList, consumers=ConsumerRound, consumer=Consumer,
                   message=Message)
    cdef int drain_selective(self) except -1
    @cython.locals(other=Consumer, verdict=cython.int, consumers=ConsumerRound)
    cdef Consumer choose_consumer(self, Consumer consumer, Message message)
    @cython.locals(queue=Queue, ready=ReadyList, consumers=ConsumerRound, cursor=Cursor,
                   message=Message, paged=cython.bint, verdict=cython.int)
    cdef Message seek(self, Consumer consumer)
    @cython.locals(looks=cython.longlong)
    cdef Py_ssize_t count_looks(self, Message message, bint paged) except -1
    cdef int evaluate(self, Consumer consumer, Message message) except -1
    @cython.locals(queue=Queue)
    cdef int end_scan(self, Consumer consumer, bint complete) except -1
    @cython.locals(consumer=Consumer, cursor=Cursor)
    cdef int end_closing(self) except -1
    cdef int add_browser(self, Consumer consumer) except -1
    cdef int remove_browser(self, Consumer consumer) except -1
    @cython.locals(consumer=Consumer)
    cdef int show_all(self) except -1
    @cython.locals(queue=Queue, ready=ReadyList, cursor=Cursor, message=Message,
                   paged=cython.bint, verdict=cython.int)
    cdef show(self, Consumer consumer)
