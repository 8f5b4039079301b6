# SPDX-License-Identifier: Apache-2.0
import cython

# A session cimports its connection: it is declared before.
cdef class SessionConnection

from headrace.protocol.v0_10.assembly cimport (
    C_CHANNEL_AT, C_FRAME_HEAD, C_TYPE_AT, C_RESERVED_AT, C_SIZE_AT, C_TRACK_AT,
)
from headrace.protocol.endpoint cimport Endpoint
from headrace.protocol.output cimport BufferPool
from headrace.protocol.v0_10.session.port cimport C_INLINE_BODY_MAX, SessionPort
from headrace.protocol.v0_x.handshake cimport STATE_AWAITING_HEADER
from headrace.wire.memory cimport copy, cut, put16, put32

cdef class SessionConnection(Endpoint):
    cdef public bint suppress_known_completed
    cdef public unsigned int max_frame_size
    cdef public unsigned long long body_max
    cdef public dict attached
    cdef public SessionPort last
    cdef public list to_announce
    cdef public unsigned int current
    cdef public list events
    cdef public bint is_server
    cdef public unsigned int channel_max
    cdef public object sessions
    cdef public int state_number
    cdef public SessionPort session

    cpdef write_control(self, unsigned int number, object control)
    cpdef write_segment(self, int segment_type, bint last, unsigned int channel, bytes payload)
    @cython.locals(limit=Py_ssize_t, payload_size=Py_ssize_t, flags=cython.int, chunk_end=Py_ssize_t,
                   size=Py_ssize_t, position=Py_ssize_t, buffer="unsigned char*")
    cpdef write_part(
        self, int segment_type, bint last, unsigned int channel, bytes payload, Py_ssize_t start, Py_ssize_t end
    )
    cpdef write_body(self, unsigned int channel, tuple parts)

    cdef on_transfer(
        self, SessionPort session, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t args_end,
        Py_ssize_t header, Py_ssize_t header_end, Py_ssize_t body, Py_ssize_t body_end
    )
    cpdef on_transfer_large(
        self, SessionPort session, bytes start, Py_ssize_t args, Py_ssize_t args_end,
        Py_ssize_t header, Py_ssize_t header_end, tuple parts, unsigned long long body_size
    )
    cdef on_accept(self, SessionPort session, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    cpdef object body_sink(self, SessionPort session, bytes header)
    cpdef on_command(self, SessionPort session, object command, bytes header, tuple parts)
    cpdef on_result(self, SessionPort session, unsigned int command_id, object value)
    cpdef on_exception(self, SessionPort session, object exception)
    cpdef on_completed(self, SessionPort session, unsigned int first_id, unsigned int last_id)
    cpdef on_session_control(self, SessionPort session, object control)
    cpdef object choose_timeout(self, SessionPort session, object requested)
    cpdef on_detached(self, SessionPort session, unsigned int channel, int code)
    cpdef on_session_failed(self, SessionPort session, object error)
    cpdef on_resumed(self, SessionPort session, bint kept)
    cpdef on_commands_lost(self, SessionPort session, unsigned int first_id, unsigned int last_id)
    cpdef detach_session(self, SessionPort session, int code)
    cpdef evict(self, SessionPort session)
    cpdef detach_all(self)
    @cython.locals(session=SessionPort)
    cpdef announce(self)
    cpdef refuse_unattached(self, unsigned int number)
    cpdef SessionPort find_session(self, unsigned int number, bytes name, bint force)
    cpdef object principal(self)
    cpdef on_attached(self, SessionPort session)
    cpdef on_detaching(self, SessionPort session)

    cdef check_header(self, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t n)
    cpdef accept_header(self, bytes header)
    cpdef control(self, SessionPort session, unsigned int number, bytes payload)
    cpdef answer_error(self, object error)
    cpdef fail(self, object error)
    cpdef on_turn_end(self)
