# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_KIND_MASK, C_PAGED, C_REDELIVERED, Message, new_message
from headrace.model.ports cimport Store
from headrace.model.queue.queue cimport Queue
from headrace.model.queue.destination cimport Consumer
from headrace.model.stream.stream cimport Stream
from headrace.model.stream.log cimport StreamLog

cdef Py_ssize_t READ_SIZE
cdef Py_ssize_t SELECT_SIZE
cdef Py_ssize_t SELECT_READ

cdef class QueueView(Stream):
    cdef public Queue source
    cdef dict ends
    cdef dict ahead

    cpdef long long message_count(self) except -1
    cpdef add_consumer(self, Consumer consumer)
    cpdef show_message(self, Consumer consumer, Message message)
    cpdef unpark(self, Consumer consumer)
    cpdef drain(self)
    @cython.locals(batch=list, was_scanning=cython.bint)
    cdef show_some(self, Consumer consumer)
    @cython.locals(source=Queue, entries=list, messages=list, message=Message,
                   first=cython.ulonglong, last=cython.ulonglong, read_size=Py_ssize_t,
                   bytes_left=Py_ssize_t)
    cdef list prepare(self, Consumer consumer)
    @cython.locals(candidate=Message)
    cdef bint matches(self, Consumer consumer, Message message, tuple entry) except -1
    @cython.locals(store=Store, paged=cython.bint, data=bytes, arrived_ms=cython.longlong)
    cdef tuple entry(self, Message message)
    cpdef remove_consumer(self, Consumer consumer)
