# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.pending_confirms cimport PendingConfirms
from headrace.model.queue.destination cimport Destination
from headrace.protocol.v0_x.connection cimport Connection

cdef class Peer(Connection):
    cdef public long long unacked
    cdef public long long prefetch
    cdef public PendingConfirms pending_confirms
    cdef public list unflushed
    cdef public list paused
    cdef public bint speaks_extensions
    cdef public bytes plain_source
    cdef public bytes plain_result

    cpdef reply(self, unsigned int number, object method)
    cpdef starve(self, Destination queue)
    cpdef refresh_all(self)
    cpdef send_confirm(self, object channel, unsigned long long token)
    cpdef on_consumer_cancelled(self, object channel, str tag)
