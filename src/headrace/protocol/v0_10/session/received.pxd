# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_10.assembly cimport Assembly, C_BEGINS, C_BODY, C_COMMAND, C_HEADER
from headrace.protocol.v0_10.session_connection cimport SessionConnection
from headrace.protocol.v0_10.session.port cimport (
    C_ATTACHED, C_DETACHING, C_INLINE_BODY_MAX, SessionPort,
)
from headrace.protocol.v0_10.session.completed_ids cimport CompletedIds
from headrace.protocol.v0_10.session.sent cimport SentCommands

cdef unsigned int SERIAL_MASK
cdef unsigned int SERIAL_HALF
cdef Py_ssize_t COMMAND_BYTES_MAX
cdef Py_ssize_t HEADER_BYTES_MAX
cdef long long RUNNING_MAX
cdef Py_ssize_t WAITING_SYNCS_MAX
cdef long long TIMELY_AFTER

@cython.final
cdef class ReceivedCommands:
    cdef SessionPort session
    cdef SentCommands sent
    cdef public bint has_state
    cdef public bint has_command_point
    cdef public CompletedIds completed
    cdef public CompletedIds known_to_peer
    cdef public list waiting_syncs
    cdef public list gaps_ahead
    cdef public Assembly assembly

    @cython.locals(session=SessionPort)
    cpdef refresh(self)
    @cython.locals(session=SessionPort, ahead=cython.uint)
    cpdef command_point(self, unsigned int number, object offset)
    @cython.locals(session=SessionPort)
    cpdef restart(self)
    @cython.locals(session=SessionPort, low=cython.longlong, high=cython.longlong, next_id=cython.longlong,
                   cursor=cython.longlong, completed=CompletedIds)
    cpdef on_gap(self, unsigned int first_id, unsigned int last_id)
    cpdef add_gap_ahead(self, long long low, long long high)
    @cython.locals(session=SessionPort, next_id=cython.longlong, cursor=cython.longlong)
    cpdef pass_gaps(self)
    @cython.locals(session=SessionPort, assembly=Assembly)
    cdef command_frame(self, int flags, int segment_type, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(session=SessionPort, assembly=Assembly)
    cpdef find_sink(self)
    cpdef refuse(self, str text)
    cpdef check_segments(self, bytes command)
    @cython.locals(session=SessionPort, assembly=Assembly, connection=SessionConnection, command=bytes, header=bytes, data=bytes,
                   size=cython.ulonglong, split=Py_ssize_t, end=Py_ssize_t)
    cpdef dispatch_command(self)
    @cython.locals(number=cython.longlong)
    cpdef handle_sync(self)
    @cython.locals(session=SessionPort, completed=CompletedIds, low=cython.longlong)
    cpdef complete(self, unsigned int number)
    @cython.locals(session=SessionPort, low=cython.longlong)
    cpdef complete_range(self, unsigned int first_id, unsigned int last_id)
    @cython.locals(completed=CompletedIds, number=cython.longlong)
    cpdef mark_complete(self, long long low, long long high)
    @cython.locals(session=SessionPort, completed=CompletedIds, known_to_peer=CompletedIds, timely=cython.bint)
    cpdef send_completed(self)
    cpdef object report(self)
    @cython.locals(session=SessionPort)
    cpdef on_flush(self, object control)
    @cython.locals(low=cython.longlong, high=cython.longlong)
    cpdef on_known_completed(self, unsigned int first_id, unsigned int last_id)

cdef unsigned int read_command_codes(bytes command) except? 0xFFFFFFFF
