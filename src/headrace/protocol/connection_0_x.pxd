# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.content cimport C_BUSY, C_CLOSING, C_OPEN, Channel, Gatherer
from headrace.protocol.endpoint cimport Endpoint
from headrace.protocol.output cimport BufferPool
from headrace.spec.ids cimport (
    BASIC_ACK, BASIC_DELIVER, BASIC_PUBLISH, CHANNEL_CLOSE, CHANNEL_CLOSE_OK, CHANNEL_OPEN,
)
from headrace.wire.memory cimport cut, get16, get32, get64

cdef unsigned long long HANDSHAKE_OCTETS_MAX
cdef unsigned long long INLINE_BODY_MAX
cdef Py_ssize_t INLINE_WAIT_MAX
cdef unsigned int TICKET_CUSTOMARY
cdef long long HELD_OCTETS_MAX

cdef class Connection(Endpoint):
    cdef public object role
    cdef public bint is_server
    cdef public object version
    cdef public bint early
    cdef public unsigned int frame_max
    cdef public unsigned int channel_max
    cdef public unsigned int heartbeat_s
    cdef public unsigned long long body_max
    cdef public unsigned int frame_limit
    cdef public int state_number
    cdef public dict channels
    cdef public Channel last
    cdef public list events
    cdef public bytes rest
    cdef public unsigned int current
    cdef public Py_ssize_t after
    cdef public unsigned long long handshake_octets
    cdef public Py_ssize_t hold_above
    cdef public bint deaf
    cdef public long long held_octets
    cdef bint replaying
    cdef public object close_reason

    cpdef bint awaits_close(self) except -1
    cpdef list receive(self, bytes data)
    @cython.locals(pos=Py_ssize_t)
    cdef Py_ssize_t feed(self, const unsigned char* d, Py_ssize_t n) except -1
    @cython.locals(i=Py_ssize_t)
    cdef check_header(self, const unsigned char* d, Py_ssize_t pos, Py_ssize_t n)
    cpdef accept_header(self, bytes header)
    cpdef refuse_header(self)
    @cython.locals(kind=cython.uint, number=cython.uint, size=Py_ssize_t, end=Py_ssize_t,
                   channel=Channel, method=cython.uint, at=Py_ssize_t)
    cdef Py_ssize_t frames(self, const unsigned char* d, Py_ssize_t pos, Py_ssize_t n) except -1
    @cython.locals(args=Py_ssize_t, key=Py_ssize_t, head=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t,
                   body_size=cython.ulonglong, got=cython.ulonglong, whole=cython.bint)
    cdef Py_ssize_t publish_frames(
        self, Channel channel, const unsigned char* d, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t n
    ) except? -1
    @cython.locals(head=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t, waits=cython.bint,
                   body_size=cython.ulonglong, got=cython.ulonglong)
    cdef Py_ssize_t deliver_frames(
        self, Channel channel, const unsigned char* d, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t n
    ) except? -1
    @cython.locals(class_id=cython.uint, due=cython.uint, body_size=cython.ulonglong)
    cdef header_frame(self, Channel channel, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    cdef body_frame(self, Channel channel, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    @cython.locals(address=bytes, header=bytes, data=bytes, start=bytes, body=bytes,
                   body_size=cython.ulonglong)
    cdef complete(self, Channel channel)
    cpdef object sink_of(
        self, Channel channel, object method, bytes header, unsigned long long body_size
    )
    cpdef hold_frame(self, Channel channel, bytes frame)
    @cython.locals(before=cython.bint, after=cython.bint)
    cpdef count_held(self, long long octets)
    cpdef forget_waiting(self, Channel channel)
    cpdef resume_later(self, Channel channel)
    @cython.locals(data=bytes, used=Py_ssize_t)
    cpdef resume(self, Channel channel)
    cpdef hold_reading(self, bint hold)
    cpdef heartbeat_frame(self, unsigned int number, Py_ssize_t size)
    @cython.locals(class_id=cython.uint, closing=cython.bint)
    cpdef method_frame(self, Channel channel, unsigned int number, bytes payload)
    cpdef connection_method(self, object method)
    cpdef channel_method(self, Channel channel, unsigned int number, object method)
    cpdef forget_channel(self, Channel channel)
    @cython.locals(channel=Channel)
    cpdef fail(self, object error)

    cpdef Channel make_channel(self, unsigned int number)
    cpdef object explain(self, error)
    cpdef on_header(self)
    cpdef on_rejected(self, bytes header)
    cpdef on_method(self, Channel channel, unsigned int number, object method)
    cpdef on_content(self, Channel channel, object method, bytes header, bytes body)
    cpdef on_ticket(self, Channel channel, unsigned int ticket, bytes address)
    cdef on_publish(
        self, Channel channel, const unsigned char* d, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t header, Py_ssize_t end, unsigned long long body_size
    )
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t)
    cdef object content_of(
        self, Channel channel, const unsigned char* d, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t header, Py_ssize_t end
    )
    cpdef on_publish_large(
        self, Channel channel, bytes start, Py_ssize_t address_len, tuple parts,
        unsigned long long body_size
    )
    cpdef on_ack(self, Channel channel, unsigned long long delivery_tag, int multiple)
    cpdef on_heartbeat(self)
    cpdef on_failed(self, Channel channel, object error)
    cpdef on_closed(self)
    cpdef turn_over(self)

cpdef bytes framed(unsigned int kind, unsigned int number, bytes payload)
