# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_10.session_connection cimport SessionConnection
from headrace.protocol.v0_10.session.port cimport C_DETACHING, SessionPort
from headrace.protocol.v0_10.connection.attachments cimport Attachments
from headrace.protocol.v0_10.connection.frames cimport FrameReader
from headrace.protocol.output cimport BufferPool
from headrace.protocol.v0_x.handshake cimport (
    STATE_AWAITING_HEADER, STATE_CLOSED, STATE_CLOSING, STATE_GREETED, STATE_OPEN,
)

cdef class Connection(SessionConnection):
    cdef public FrameReader reader
    cdef public Attachments attachments
    cdef public bytes rest
    cdef public object role
    cdef public unsigned int offered_frame_size
    cdef public unsigned int heartbeat_s
    cdef public object close_reason
    cdef public list mechanisms
    cdef public object offer

    cpdef list receive(self, bytes data)
    cdef Py_ssize_t feed(self, const unsigned char* buffer, Py_ssize_t length) except -1
    cpdef bint awaits_close(self) except -1
    @cython.locals(i=Py_ssize_t)
    cdef check_header(self, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t length)
    cpdef accept_header(self, bytes header)
    cpdef refuse_header(self)
    cpdef control(self, SessionPort session, unsigned int number, bytes payload)
    cpdef connection_control(self, unsigned int number, object control)
    cpdef answer_error(self, object error)
    cpdef fail(self, object error)
    cpdef close_silently(self)
    cpdef object explain(self, object error)
    cpdef send_control(self, object control)
    cpdef on_header(self)
    cpdef on_rejected(self, bytes header)
    cpdef on_control(self, unsigned int number, object control)
    cpdef on_heartbeat(self)
    cpdef on_failed(self, object error)
    cpdef on_closed(self)
