# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.frames cimport (
    C_ACK_FLAG_AT, C_ACK_LEN, C_ARGUMENTS_AT, C_BODY, C_CHANNEL_AT, C_END, C_HEADER, C_HEARTBEAT,
    C_METHOD, C_OVERHEAD, C_PAYLOAD_AT, C_SIZE_AT,
)
from headrace.protocol.v0_x.answers cimport Answers
from headrace.protocol.v0_x.channel cimport C_BUSY, C_CLOSING, C_OPEN, C_OPENING, Channel
from headrace.protocol.v0_x.content_frames cimport ContentReader
from headrace.protocol.v0_x.upcalls cimport EventCollector, Upcalls
from headrace.protocol.endpoint cimport C_METHOD_WORK, Endpoint
from headrace.protocol.output cimport BufferPool
from headrace.spec.ids cimport (
    BASIC_ACK, BASIC_DELIVER, BASIC_PUBLISH, CHANNEL_CLOSE, CHANNEL_CLOSE_OK, CHANNEL_OPEN,
)
from headrace.wire.memory cimport cut, get16, get32, get64, put16, put32, put64
from headrace.protocol.v0_x.handshake cimport (
    STATE_AWAITING_HEADER, STATE_CLOSED, STATE_CLOSING, STATE_GREETED, STATE_OPEN, STATE_TUNING,
)

cdef long long DEFERRED_BYTES_MAX

cdef class Connection(Endpoint):
    cdef public object role
    cdef public bint is_server
    cdef public object version
    cdef public bint is_early
    cdef public unsigned int frame_max
    cdef public dict channels
    cdef public unsigned int current
    cdef readonly Upcalls owner
    cdef ContentReader contents
    cdef readonly Answers answers
    cdef public unsigned int channel_max
    cdef public unsigned int heartbeat_s
    cdef public int state_number
    cdef public Channel last
    cdef public bytes rest
    cdef public unsigned long long handshake_bytes
    cdef public Py_ssize_t hold_above
    cdef public bint ignores_input
    cdef public bint is_closed_by_peer
    cdef public long long deferred_bytes
    cdef public object close_reason
    cdef public object deferred_close

    cpdef set_owner(self, Upcalls owner)
    cpdef bint awaits_close(self) except -1
    cpdef list receive(self, bytes data)
    @cython.locals(pos=Py_ssize_t)
    cdef Py_ssize_t feed(self, const unsigned char* buffer, Py_ssize_t length) except -1
    @cython.locals(i=Py_ssize_t)
    cdef check_header(self, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t length)
    cpdef accept_header(self, bytes header)
    cpdef await_tune_ok(self, object version)
    cpdef refuse_header(self)
    @cython.locals(first=cython.bint, frame_type=cython.uint, number=cython.uint, size=Py_ssize_t,
                   end=Py_ssize_t, channel=Channel, method=cython.uint, position=Py_ssize_t, served=cython.bint,
                   contents=ContentReader)
    cdef Py_ssize_t frames(self, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t length) except -1
    cpdef heartbeat_frame(self, unsigned int number, Py_ssize_t size)
    cpdef defer_frame(self, Channel channel, bytes frame)
    @cython.locals(was_full=cython.bint, is_full=cython.bint)
    cpdef count_deferred(self, long long size)
    cpdef drop_waiting(self, Channel channel)
    @cython.locals(data=bytes, used=Py_ssize_t)
    cpdef resume(self, Channel channel, int reason)
    @cython.locals(class_id=cython.uint, closing=cython.bint)
    cpdef method_frame(self, Channel channel, unsigned int number, bytes payload)
    cpdef connection_method(self, object method)
    cpdef channel_method(self, Channel channel, unsigned int number, object method)
    cpdef remove_channel(self, Channel channel)
    @cython.locals(channel=Channel)
    cpdef fail(self, object error)
    cpdef refuse_request(self, Channel channel, object error, unsigned int request)
    cpdef send_in_order(self, Channel channel, bytes payload)
    cpdef object defer_answer(self, Channel channel, bytes payload)
    cpdef send_answers(self, Channel channel)
    cpdef drop_answers(self, Channel channel)
    cpdef send_last(self, object method, object error)
    cpdef send_deferred_close(self)
    @cython.locals(limit=Py_ssize_t, position=Py_ssize_t)
    cpdef send_encoded(self, unsigned int number, bytes method, bytes header, bytes body)
    @cython.locals(buffer="unsigned char*", position=Py_ssize_t)
    cpdef send_ack(self, unsigned int number, unsigned long long delivery_tag, bint multiple)
    @cython.locals(channel=Channel)
    cdef check_open(self, unsigned int number)
