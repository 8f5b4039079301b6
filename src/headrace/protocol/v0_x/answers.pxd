# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.channel cimport C_OPEN, Channel
from headrace.protocol.v0_x.content_frames cimport Contents
from headrace.protocol.output cimport BufferPool

cdef class Answers(Contents):
    cdef public unsigned int owing

    cpdef say(self, Channel channel, bytes payload)
    cpdef object hold_answer(self, Channel channel, bytes payload)
    cpdef bint must_pause(self, Channel channel, unsigned int method) except -1
    cpdef send_answers(self, Channel channel)
    cpdef forget_answers(self, Channel channel)
    cpdef refuse_request(self, Channel channel, object error, unsigned int request)
    cpdef resume(self, Channel channel, int reason)
    cpdef part(self)
