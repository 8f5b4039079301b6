# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.pending_confirms cimport PendingConfirms
from headrace.gateway.v0_10.session.completion cimport Completion
from headrace.gateway.v0_10.session.session cimport Session010
from headrace.gateway.v0_10.session.subscription cimport Subscription, WindowCredit
from headrace.model.ports cimport Store
from headrace.model.counters cimport Counters
from headrace.protocol.v0_10.connection.connection cimport Connection
from headrace.protocol.v0_10.session.port cimport SessionPort
from headrace.protocol.v0_x.handshake cimport (
    STATE_AUTHENTICATING, STATE_OPEN,
)

cdef class Connection010(Connection):
    cdef public object context
    cdef public object shared
    cdef public bint loopback
    cdef public Counters counters
    cdef public Store store
    cdef public PendingConfirms pending_confirms
    cdef public str mechanism
    cdef public dict client_properties
    cdef public bint is_from_qpid
    cdef public list resumed
    cdef public list unflushed
    cdef public dict handlers

    @cython.locals(broker_session=Session010)
    cdef on_transfer(
        self, SessionPort session, const unsigned char* buffer, Py_ssize_t args,
        Py_ssize_t args_end, Py_ssize_t header, Py_ssize_t header_end, Py_ssize_t body,
        Py_ssize_t body_end
    )
    @cython.locals(broker_session=Session010)
    cpdef on_transfer_large(
        self, SessionPort session, bytes start, Py_ssize_t args, Py_ssize_t args_end,
        Py_ssize_t header, Py_ssize_t header_end, tuple parts, unsigned long long body_size
    )
    @cython.locals(broker_session=Session010)
    cdef on_accept(
        self, SessionPort session, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end
    )
    cpdef object body_sink(self, SessionPort session, bytes header)
    @cython.locals(broker_session=Session010)
    cpdef on_command(self, SessionPort session, object command, bytes header, tuple parts)
    @cython.locals(broker_session=Session010, windows=WindowCredit)
    cpdef on_completed(self, SessionPort session, unsigned int first_id, unsigned int last_id)
    cpdef on_output_drained(self)
    @cython.locals(waiting=list, completion=Completion)
    cpdef on_turn_end(self)
    cpdef announce_later(self)
