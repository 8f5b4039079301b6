# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_10.session_connection cimport SessionConnection
from headrace.protocol.v0_10.session.port cimport C_ATTACHED, C_ATTACHING, C_DETACHING
from headrace.protocol.v0_10.session.session cimport Session
from headrace.protocol.v0_x.handshake cimport STATE_OPEN

@cython.final
cdef class Attachments:
    cdef SessionConnection connection

    @cython.locals(connection=SessionConnection, attached=Session)
    cpdef handle_attach(self, Session session, unsigned int number, object control)
    @cython.locals(connection=SessionConnection)
    cpdef handle_detach(self, Session session, unsigned int number, object control)
    cpdef handle_attached(self, Session session, object control)
    cpdef handle_detached(self, Session session, object control)
