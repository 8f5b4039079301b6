# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.endpoint cimport Endpoint
from headrace.protocol.v0_x.channel cimport C_OPEN, Channel

@cython.final
cdef class Answers:
    cdef Endpoint output
    cdef public unsigned int deferring

    cpdef send_in_order(self, Channel channel, bytes payload)
    cpdef defer(self, object deferred)
    cpdef bint must_pause(self, Channel channel, object version, unsigned int method) except -1
    cpdef object send(self, Channel channel)
    cpdef bint drop(self, Channel channel) except -1
