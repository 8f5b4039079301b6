# SPDX-License-Identifier: Apache-2.0
from headrace.model.counters cimport Counters
from headrace.model.ports cimport Store
from headrace.model.queue.queue cimport Queue
from headrace.model.tallies cimport ChannelTally
from headrace.protocol.v0_10.session.session cimport Session

cdef class SessionContext(Session):
    cdef public object context
    cdef public unsigned int number
    cdef public object user
    cdef public object vhost
    cdef public Counters counters
    cdef public Store store
    cdef public ChannelTally tally
    cdef public bint is_released
    cdef public object transaction
    cdef public Queue reply_queue
    cdef public dict ended_tags
    cdef public list on_end

    cpdef fail_now(self, object error)
