# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_10.attachment cimport (
    C_ATTACHED, C_ATTACHING, C_DETACHED, C_DETACHING, Carrier,
)
from headrace.protocol.v0_10.session.received cimport ReceivedCommands

cdef class Session(ReceivedCommands):
    cdef public object timeout_s
    cdef public object registry

    cpdef attach(self, Carrier connection, unsigned int channel)
    cpdef begin(self)
    cpdef leave(self)
    cpdef end(self)
    cpdef set_timeout(self, object timeout_s)
    cpdef on_control(self, object control)
    cpdef detach(self)
    @cython.locals(connection=Carrier)
    cpdef fail(self, object error)
