# SPDX-License-Identifier: Apache-2.0
from headrace.protocol.output cimport BufferPool, Output

cdef class Endpoint(Output):
    cdef public unsigned int number
    cdef public Py_ssize_t output_max
    cdef public bint publishes
    cdef public bint published
    cdef public bint blocked
    cdef public bint ended
    cdef public object pace
    cdef public dict starving
    cdef public object user
    cdef public object vhost
    cdef public unsigned long long held_until
    cdef public object held_by
    cdef public object transport

    cpdef forget_publishes(self)
    cpdef hold(self, object store, unsigned long long position)
    cpdef bint is_held(self) except -1
    cdef Py_ssize_t feed(self, const unsigned char* d, Py_ssize_t n) except -1
    cpdef bint awaits_close(self) except -1
    cpdef send_heartbeat(self)
    cpdef bint owes(self) except -1
    cpdef block(self, str reason)
    cpdef unblock(self)
    cpdef fed(self)
    cpdef end(self)
    cpdef force_close(self, str reason)
    cpdef farewell(self)
    cpdef logged_in(self, object user)
    cpdef login_refused(self)
