# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_10.attachment cimport SessionPort, Carrier
from headrace.protocol.output cimport BufferPool
from headrace.protocol.v0_10.session.session cimport Session
from headrace.protocol.v0_x.handshake cimport STATE_AWAITING_HEADER, STATE_OPEN

cdef class Attachments(Carrier):
    cdef public unsigned int channel_max
    cdef public object sessions
    cdef public int state_number
    cdef public SessionPort session

    cpdef peer_attaches(self, Session session, unsigned int number, object control)
    cpdef peer_detaches(self, Session session, unsigned int number, object control)
    cpdef peer_attached(self, Session session, object control)
    cpdef peer_detached(self, Session session, object control)
    cpdef not_attached(self, unsigned int number)
    cpdef Session find_session(self, unsigned int number, bytes name, bint force)
    cpdef object principal(self)
    cpdef let_go(self, Session session, int code)
    cpdef evict(self, Session session)
    cpdef lost(self)
    @cython.locals(session=SessionPort)
    cpdef announce(self)
    cpdef write_control(self, unsigned int number, object control)
    cpdef on_attached(self, Session session)
