# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.output cimport BufferPool
from headrace.protocol.session_0_10 cimport Carrier, Session
from headrace.wire.memory cimport cut, get16, get32

cdef unsigned int SERIAL_MASK
cdef unsigned int SERIAL_HALF
cdef Py_ssize_t CONTROL_OCTETS_MAX
cdef Py_ssize_t EMPTY_FRAMES_MAX
cdef Py_ssize_t INLINE_WAIT_MAX
cdef unsigned int TRANSFER_START
cdef unsigned int ACCEPT_START

cdef class Connection(Carrier):
    cdef public object role
    cdef public bint is_server
    cdef public unsigned int offered_frame_size
    cdef public unsigned int channel_max
    cdef public object sessions
    cdef public unsigned int heartbeat_s
    cdef public Py_ssize_t frame_limit
    cdef public int state_number
    cdef public bytes rest
    cdef public bytes held
    cdef public bint handling
    cdef public Py_ssize_t after
    cdef public Session session
    cdef public Py_ssize_t handshake_octets
    cdef public Py_ssize_t hold_above
    cdef public bint deaf
    cdef public object close_reason
    cdef public list mechanisms
    cdef public object offer
    cdef public dict controls
    cdef public Py_ssize_t control_octets
    cdef public Py_ssize_t control_empty

    cpdef bint awaits_close(self) except -1
    cpdef list receive(self, bytes data)
    @cython.locals(pos=Py_ssize_t)
    cdef Py_ssize_t feed(self, const unsigned char* d, Py_ssize_t n) except -1
    @cython.locals(size=Py_ssize_t, total=Py_ssize_t, pos=Py_ssize_t)
    cdef Py_ssize_t feed_held(self, bytes data) except? -1
    cdef bint our_turn(self) except -1
    cpdef flood(self)
    @cython.locals(pos=Py_ssize_t)
    cdef Py_ssize_t handle(self, const unsigned char* d, Py_ssize_t n) except -1
    cpdef failed(self, object error)
    @cython.locals(i=Py_ssize_t)
    cdef check_header(self, const unsigned char* d, Py_ssize_t pos, Py_ssize_t n)
    cpdef accept_header(self, bytes header)
    cpdef refuse_header(self)
    @cython.locals(flags=cython.uint, kind=cython.uint, size=Py_ssize_t, number=cython.uint,
                   end=Py_ssize_t, session=Session, at=cython.int)
    cdef Py_ssize_t frames(self, const unsigned char* d, Py_ssize_t pos, Py_ssize_t n) except -1
    cdef object frame_error(
        self, unsigned int flags, unsigned int kind, Py_ssize_t size, unsigned int track,
        unsigned int number
    )
    @cython.locals(at=Py_ssize_t, header=Py_ssize_t, header_end=Py_ssize_t, body=Py_ssize_t,
                   number=cython.uint, wait=cython.bint, size=Py_ssize_t)
    cdef Py_ssize_t transfer_frames(
        self, Session session, const unsigned char* d, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t n
    ) except? -1
    cdef Py_ssize_t transfer(
        self, Session session, const unsigned char* d, Py_ssize_t pos, Py_ssize_t end,
        Py_ssize_t header, Py_ssize_t header_end, Py_ssize_t body, Py_ssize_t at
    ) except -1
    @cython.locals(begun=bytes, payload=bytes)
    cdef control_frame(
        self, Session session, unsigned int flags, unsigned int number, const unsigned char* d,
        Py_ssize_t lo, Py_ssize_t hi
    )
    cpdef control(self, Session session, unsigned int number, bytes payload)
    cpdef connection_control(self, unsigned int number, object control)
    cpdef peer_attaches(self, Session session, unsigned int number, object control)
    cpdef peer_detaches(self, Session session, unsigned int number, object control)
    cpdef not_attached(self, unsigned int number)
    cpdef let_go(self, Session session, int code)
    cpdef evict(self, Session session)
    cpdef Session find_session(self, unsigned int number, bytes name, bint force)
    cpdef object principal(self)
    cpdef fail(self, object error)
    cpdef vanish(self)
    cpdef object explain(self, object error)
    cpdef send_control(self, object control)
    cpdef write_control(self, unsigned int number, object control)
    @cython.locals(session=Session)
    cpdef announce(self)
    cpdef lost(self)

    cpdef on_header(self)
    cpdef on_rejected(self, bytes header)
    cpdef on_control(self, unsigned int number, object control)
    cpdef on_attached(self, Session session)
    cpdef on_heartbeat(self)
    cpdef on_failed(self, object error)
    cpdef on_closed(self)
    cpdef turn_over(self)

@cython.locals(base=cython.uint, before=cython.longlong, first=cython.longlong,
               last=cython.longlong)
cdef bint check_ranges(const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi) except -1
