# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_10.assembly cimport (
    C_CHANNEL_AT, C_FRAME_HEAD, C_RESERVED_AT, C_SIZE_AT, C_TRACK_AT,
)
from headrace.protocol.v0_10.session_connection cimport SessionConnection
from headrace.protocol.v0_10.session.port cimport C_DETACHING, SessionPort
from headrace.protocol.v0_10.session.completed_ids cimport CompletedIds
from headrace.wire.memory cimport copy, cut, get32, put16, put32

cdef enum:
    C_HEADER_START = 0x0302
    C_BODY_START = 0x0703
    C_RANGE_LEN = 8
    C_RANGE_CONTROL_LEN = 26
    C_RANGE_CONTROL_START = 0x0F00001A
    C_KNOWN_COMPLETED = 0x020B01

cdef unsigned int SERIAL_MASK
cdef Py_ssize_t REPLAY_BYTES_MAX
cdef Py_ssize_t REPLAY_COMMANDS_MAX

@cython.final
cdef class SentCommands:
    cdef SessionPort session
    cdef public bint lossless
    cdef public bint keeps_for_replay
    cdef public unsigned int next_id
    cdef public CompletedIds completed
    cdef public bint is_resuming
    cdef public dict kept
    cdef public Py_ssize_t kept_bytes
    cdef public bint has_due
    cdef public unsigned int due_first
    cdef public unsigned int due_last
    cdef public object due_more

    @cython.locals(number=cython.uint, session=SessionPort)
    cpdef send(self, bytes payload, bytes header, tuple parts)
    @cython.locals(size=Py_ssize_t)
    cpdef bytes transfer_head(self, bytes payload)
    @cython.locals(number=cython.uint, session=SessionPort, connection=SessionConnection, header_size=Py_ssize_t,
                   body_size=Py_ssize_t, size=Py_ssize_t, position=Py_ssize_t, buffer="unsigned char*",
                   channel=cython.uint)
    cdef unsigned int send_transfer(
        self, bytes head, const unsigned char* header_buffer, Py_ssize_t header, Py_ssize_t header_end,
        const unsigned char* body_buffer, Py_ssize_t body, Py_ssize_t body_end
    ) except? 0xFFFFFFFF
    cpdef object send_transfer_parts(self, bytes head, bytes header, tuple parts)
    @cython.locals(session=SessionPort, sent=CompletedIds, low=cython.longlong, high=cython.longlong)
    cpdef peer_completed(self, unsigned int first_id, unsigned int last_id)
    @cython.locals(first=cython.uint, last=cython.uint, announced=cython.bint)
    cdef completed_frame(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    cpdef add_known_completed(self, unsigned int first_id, unsigned int last_id)
    cpdef send_known_completed(self)
    cpdef clear_due(self)
    @cython.locals(size=Py_ssize_t)
    cpdef keep(self, bytes payload, bytes header, tuple parts)
    cpdef release(self, long long low, long long high)
    @cython.locals(low=cython.longlong, high=cython.longlong)
    cpdef drop_confirmed(self, unsigned int first_id, unsigned int last_id)
    cpdef drop_all(self)
    @cython.locals(session=SessionPort, connection=SessionConnection)
    cpdef write(self, bytes payload, bytes header, tuple parts)
    cpdef write_control(self, object control)
    @cython.locals(connection=SessionConnection, position=Py_ssize_t, buffer="unsigned char*")
    cpdef write_range(self, unsigned int head, unsigned int first_id, unsigned int last_id)
    cpdef send_command_point(self, unsigned int number, object offset)
