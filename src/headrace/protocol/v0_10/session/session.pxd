# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_10.session_connection cimport SessionConnection
from headrace.protocol.v0_10.session.port cimport (
    C_ATTACHED, C_ATTACHING, C_DETACHED, C_DETACHING, SessionPort,
)
from headrace.protocol.v0_10.session.received cimport ReceivedCommands
from headrace.protocol.v0_10.session.sent cimport SentCommands

cdef class Session(SessionPort):
    cdef public SentCommands sent
    cdef public ReceivedCommands received
    cdef public object timeout_s
    cdef public object registry

    cpdef attach(self, SessionConnection connection, unsigned int channel)
    cpdef begin(self)
    cpdef leave_channel(self)
    cpdef end(self)
    cpdef set_timeout(self, object timeout_s)
    cpdef on_control(self, object control)
    cpdef detach(self)
    @cython.locals(connection=SessionConnection)
    cpdef fail(self, object error)
    cpdef refresh(self)
    cpdef send_command(self, object command, bint sync=*, bytes header=*, object body=*)
    cpdef send_result(self, unsigned int command_id, object value)
    cpdef complete_range(self, unsigned int first_id, unsigned int last_id)
