# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.confirm cimport ConfirmLine
from headrace.model.served cimport ServedMessages
from headrace.protocol.connection_0_x cimport Connection

cdef class Peer(Connection):
    cdef public long long unacked
    cdef public long long prefetch
    cdef public ConfirmLine line
    cdef public list unflushed
    cdef public bint speaks_more
    cdef public bytes plain_from
    cdef public bytes plain_to

    cpdef starve(self, ServedMessages queue)
    cpdef refresh_all(self)
    cpdef answer(self, object channel, unsigned long long token)
    cpdef consumer_cancelled(self, object consumer)
