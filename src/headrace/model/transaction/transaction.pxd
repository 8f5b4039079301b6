# SPDX-License-Identifier: Apache-2.0
cimport cython

from headrace.model.transaction.publishes cimport TransactionPublishes
from headrace.model.message cimport C_KIND_FILE, C_KIND_MASK, Message
from headrace.model.counters cimport C_MESSAGE_OVERHEAD, C_PAGED_WEIGHT, Counters

cdef class Transaction:
    cdef public object vhost
    cdef public Counters counters
    cdef public bint owns_messages
    cdef public bint is_ended
    cdef public TransactionPublishes publishes
    cdef public bint counts_publishes
    cdef public long long publish_count
    cdef public str error_text
    cdef public long long error_index
    cdef public list settles
    cdef public dict facts
    cdef public dict numbers
    cdef public dict interceptions
    cdef public long long size
    cdef public long long memory
    cdef public dict _holders

    @cython.locals(size=cython.longlong, kind=cython.uint, counters=Counters, crowded=cython.bint)
    cpdef publish(self, Message message, object queues, object persistent)
    cpdef count_publish(self, str error_text)
    cpdef tuple detach(self)
    cdef _check_room(self, long long size)
