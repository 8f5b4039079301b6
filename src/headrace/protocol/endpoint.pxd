# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.output cimport BufferPool, Output

cdef enum:
    C_METHOD_WORK = 256

cdef long long TURN_NS
cdef long long WORK_PER_LOOK

cdef class Endpoint(Output):
    cdef public unsigned int number
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
    cdef public unsigned long long promised
    cdef public Py_ssize_t promised_from
    cdef public object stopwatch
    cdef public long long work_left
    cdef public long long turn_until
    cdef public long long turn_step
    cdef public bint is_turn_spent
    cdef public object transport

    cpdef clear_publishes(self)
    cpdef hold(self, object store, unsigned long long position)
    cpdef promise(self, object store, unsigned long long position)
    cpdef drop_promised(self)
    cpdef bint is_held(self) except -1
    cdef Py_ssize_t feed(self, const unsigned char* buffer, Py_ssize_t n) except -1
    cdef int begin_turn(self) except -1
    @cython.locals(now=cython.longlong)
    cdef bint turn_is_over(self) except -1
    cpdef bint awaits_close(self) except -1
    cpdef send_heartbeat(self)
    @cython.locals(size=Py_ssize_t)
    cpdef Py_ssize_t prepend_heartbeat(self) except -1
    cpdef bint has_unacked(self) except -1
    cpdef block(self, str reason)
    cpdef unblock(self)
    cpdef on_output_drained(self)
    cpdef end(self)
    cpdef fail_changes(self, object store)
    cpdef force_close(self, str reason)
    cpdef close_for_shutdown(self)
    cpdef accept_login(self, object user)
    cpdef refuse_login(self)
