# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_10.assembly cimport (
    C_BEGINS, C_BODY, C_CHANNEL_AT, C_COMMAND, C_CONTROL, C_FIRST_FRAME, C_FIRST_WHOLE,
    C_FRAME_HEAD, C_HEADER, C_TYPE_AT, C_LAST_FRAME, C_ONE_SEGMENT, C_SIZE_AT, C_WHOLE,
)
from headrace.protocol.v0_10.session_connection cimport SessionConnection
from headrace.protocol.v0_10.session.port cimport C_ATTACHED, SessionPort
from headrace.protocol.endpoint cimport C_METHOD_WORK
from headrace.wire.memory cimport cut, get16, get32
from headrace.protocol.v0_x.handshake cimport (
    STATE_AUTHENTICATING, STATE_AWAITING_HEADER, STATE_CLOSED, STATE_CLOSING, STATE_GREETED, STATE_OPEN,
    STATE_OPENING,
)

cdef unsigned int SERIAL_MASK
cdef unsigned int SERIAL_HALF
cdef Py_ssize_t CONTROL_BYTES_MAX
cdef Py_ssize_t EMPTY_FRAMES_MAX
cdef Py_ssize_t INLINE_WAIT_MAX
cdef unsigned int TRANSFER_START
cdef unsigned int ACCEPT_START

@cython.final
cdef class FrameReader:
    cdef SessionConnection connection
    cdef public Py_ssize_t frame_limit
    cdef public bytes held
    cdef public bint is_handling
    cdef public Py_ssize_t frame_end
    cdef public Py_ssize_t handshake_bytes
    cdef public Py_ssize_t hold_above
    cdef public bint ignores_input
    cdef public dict controls
    cdef public Py_ssize_t control_bytes
    cdef public Py_ssize_t control_empty

    @cython.locals(pos=Py_ssize_t)
    cdef Py_ssize_t feed(self, const unsigned char* buffer, Py_ssize_t length) except -1
    @cython.locals(size=Py_ssize_t, total=Py_ssize_t, pos=Py_ssize_t)
    cdef Py_ssize_t feed_held(self, bytes data) except? -1
    @cython.locals(state=cython.int)
    cdef bint awaits_owner(self) except -1
    cpdef refuse_flood(self)
    @cython.locals(connection=SessionConnection, pos=Py_ssize_t)
    cdef Py_ssize_t handle(self, const unsigned char* buffer, Py_ssize_t length) except -1
    @cython.locals(connection=SessionConnection, flags=cython.uint, segment_type=cython.uint, size=Py_ssize_t, number=cython.uint,
                   end=Py_ssize_t, session=SessionPort)
    cdef Py_ssize_t frames(self, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t length) except -1
    cdef object frame_error(
        self, unsigned int flags, unsigned int segment_type, Py_ssize_t size, unsigned int track,
        unsigned int number
    )
    @cython.locals(position=Py_ssize_t, header=Py_ssize_t, header_end=Py_ssize_t, body=Py_ssize_t,
                   number=cython.uint, waits=cython.bint, size=Py_ssize_t)
    cdef Py_ssize_t transfer_frames(
        self, SessionPort session, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t length
    ) except? -1
    cdef Py_ssize_t transfer(
        self, SessionPort session, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t end,
        Py_ssize_t header, Py_ssize_t header_end, Py_ssize_t body, Py_ssize_t position
    ) except -1
    @cython.locals(begun=bytes, payload=bytes)
    cdef control_frame(
        self, SessionPort session, unsigned int flags, unsigned int number, const unsigned char* buffer,
        Py_ssize_t start, Py_ssize_t end
    )

@cython.locals(base=cython.uint, before=cython.longlong, first=cython.longlong,
               last=cython.longlong)
cdef bint check_ranges(const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end) except -1
