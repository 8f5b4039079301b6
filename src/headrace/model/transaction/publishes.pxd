# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.model.message cimport (
    C_GONE, C_KIND_FILE, C_KIND_MASK, C_PAGED, C_PERSISTENT, C_REDELIVERED, C_SCRATCH, Message,
    copy_message,
)
from headrace.model.ports cimport Store
from headrace.model.queue.queue cimport Queue
from headrace.model.counters cimport Counters, memory_weight

@cython.final
cdef class TransactionPublishes:
    cdef public list messages
    cdef public list queues
    cdef public list persistent
    cdef public Py_ssize_t files
    cdef public Py_ssize_t paged
    cdef public Py_ssize_t lost

    cpdef add(self, Message message, tuple queues, object persistent)
    @cython.locals(last=tuple, queues=tuple)
    cpdef list routes(self)
    @cython.locals(message=Message)
    cpdef unpage(self, Store store)
    @cython.locals(message=Message)
    cpdef abandon(self, Store store)
    @cython.locals(
        in_scratch=cython.bint, kept=list, count=Py_ssize_t, i=Py_ssize_t, queues=tuple, ids=bytes, message=Message,
        queue=Queue, q=Queue,
    )
    cpdef list store_all(self, Store store, Counters counters)
    cdef bint try_unpage(self, Py_ssize_t i, Store store) except -1
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, message=Message, crowded=cython.bint)
    cpdef charge_memory(self, Store store, Counters counters)
    @cython.locals(lost=Py_ssize_t, i=Py_ssize_t, message=Message, queue=Queue)
    cpdef Py_ssize_t admit(self, Py_ssize_t start, Py_ssize_t end, Store store, Counters counters) except -1
    @cython.locals(i=Py_ssize_t, message=Message, queue=Queue)
    cpdef drop(self, Py_ssize_t start, Py_ssize_t end, Store store, Counters counters)
    @cython.locals(placeholder=Message, i=Py_ssize_t)
    cpdef free(self, Py_ssize_t start, Py_ssize_t end)

cdef Message new_placeholder()
cpdef unpage(Message message, Store store)

@cython.locals(kept=cython.bint, message_copy=Message, kind=cython.uint, lane=Queue)
cpdef bint admit(Message message, Queue queue, Store store) except -1
cdef disown(Message message, Queue queue, Store store)
