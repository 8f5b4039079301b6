# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_KIND_MASK, C_PAGED, C_REDELIVERED, Message
from headrace.model.ports cimport Store
from headrace.model.queue cimport Consumer, Queue
from headrace.model.stream cimport Stream, StreamLog

cdef Py_ssize_t READ_OCTETS

cdef class View(Stream):
    cdef public Queue source
    cdef dict ends
    cdef dict ahead

    cpdef long long message_count(self) except -1
    cpdef drain(self)
    @cython.locals(batch=list)
    cdef show_some(self, Consumer consumer)
    @cython.locals(source=Queue, found=list, messages=list, message=Message,
                   first=cython.ulonglong, last=cython.ulonglong)
    cdef list prepare(self, Consumer consumer)
    @cython.locals(store=Store, paged=cython.bint, data=bytes, arrived_ms=cython.longlong)
    cdef tuple entry(self, Message message)
    cpdef remove_consumer(self, Consumer consumer)
