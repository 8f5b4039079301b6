# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.assembly_0_10 cimport Assembly
from headrace.protocol.endpoint cimport Endpoint
from headrace.protocol.ledger_0_10 cimport Ledger
from headrace.protocol.output cimport BufferPool
from headrace.wire.memory cimport copy, cut, get32, put16, put32

cdef unsigned int SERIAL_MASK
cdef unsigned int SERIAL_HALF
cdef unsigned long long INLINE_BODY_MAX
cdef Py_ssize_t COMMAND_OCTETS_MAX
cdef Py_ssize_t HEADER_OCTETS_MAX
cdef long long RUNNING_MAX
cdef Py_ssize_t WAITING_SYNCS_MAX
cdef Py_ssize_t REPLAY_OCTETS_MAX
cdef Py_ssize_t REPLAY_COMMANDS_MAX
cdef long long TIMELY_AFTER
cdef int DETACHED
cdef int ATTACHING
cdef int ATTACHED
cdef int DETACHING

cdef class Session:
    cdef public bytes name
    cdef public bint lossless
    cdef public Carrier connection
    cdef public unsigned int channel
    cdef public int state
    cdef public object timeout_s
    cdef public bint keeps
    cdef public bint ended
    cdef public object error
    cdef public object registry
    cdef public bint known
    cdef public bint ready
    cdef public bint quick
    cdef public unsigned int next_in
    cdef public unsigned int cursor
    cdef public unsigned int command_id
    cdef public bint sync
    cdef public bint news
    cdef public bint listed
    cdef public Ledger done
    cdef public Ledger told
    cdef public list waits
    cdef public list skips
    cdef public Assembly assembly
    cdef public unsigned int next_id
    cdef public Ledger sent
    cdef public bint resuming
    cdef public dict kept
    cdef public Py_ssize_t kept_octets
    cdef public bint owed
    cdef public unsigned int owed_lo
    cdef public unsigned int owed_hi
    cdef public object owed_more

    cpdef attach(self, Carrier connection, unsigned int channel)
    cpdef begin(self)
    cpdef leave(self)
    cpdef end(self)
    cpdef set_timeout(self, object timeout_s)
    cpdef refresh(self)
    cpdef on_control(self, object control)
    @cython.locals(ahead=cython.uint)
    cpdef command_point(self, unsigned int number, object offset)
    @cython.locals(low=cython.longlong, high=cython.longlong, following=cython.longlong,
                   at=cython.longlong, done=Ledger)
    cpdef gap(self, unsigned int lo, unsigned int hi)
    cpdef skip(self, long long low, long long high)
    @cython.locals(following=cython.longlong, at=cython.longlong)
    cpdef leap(self)
    cpdef flushed(self, object control)
    cpdef object report(self)
    @cython.locals(low=cython.longlong, high=cython.longlong)
    cpdef peer_knows(self, unsigned int lo, unsigned int hi)
    @cython.locals(assembly=Assembly)
    cdef command_frame(self, int flags, int kind, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    @cython.locals(assembly=Assembly)
    cpdef find_sink(self)
    cpdef refuse(self, str text)
    cpdef check_segments(self, bytes command)
    cpdef arrive(self, bint sync)
    @cython.locals(assembly=Assembly, connection=Carrier, command=bytes, header=bytes, data=bytes,
                   size=cython.ulonglong, split=Py_ssize_t, end=Py_ssize_t)
    cpdef assembled(self)
    @cython.locals(number=cython.longlong)
    cpdef wait(self)
    @cython.locals(done=Ledger, low=cython.longlong)
    cpdef complete(self, unsigned int number)
    @cython.locals(low=cython.longlong)
    cpdef complete_range(self, unsigned int lo, unsigned int hi)
    @cython.locals(done=Ledger, number=cython.longlong)
    cpdef mark(self, long long low, long long high)
    cpdef note(self)
    @cython.locals(done=Ledger, told=Ledger, timely=cython.bint)
    cpdef tell(self)
    @cython.locals(sent=Ledger, low=cython.longlong, high=cython.longlong)
    cpdef peer_completed(self, unsigned int lo, unsigned int hi)
    @cython.locals(first=cython.uint, last=cython.uint, told=cython.bint)
    cdef completed_frame(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    cpdef owe(self, unsigned int lo, unsigned int hi)
    cpdef release(self, long long low, long long high)
    @cython.locals(low=cython.longlong, high=cython.longlong)
    cpdef forget_kept(self, unsigned int lo, unsigned int hi)
    @cython.locals(number=cython.uint)
    cpdef send(self, bytes payload, bytes header, tuple parts)
    @cython.locals(size=Py_ssize_t)
    cpdef keep(self, bytes payload, bytes header, tuple parts)
    @cython.locals(size=Py_ssize_t)
    cpdef bytes transfer_head(self, bytes payload)
    @cython.locals(number=cython.uint, connection=Carrier, header_size=Py_ssize_t,
                   body_size=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t, buffer="unsigned char*",
                   channel=cython.uint)
    cdef unsigned int send_transfer(
        self, bytes head, const unsigned char* h, Py_ssize_t header, Py_ssize_t header_end,
        const unsigned char* b, Py_ssize_t body, Py_ssize_t body_end
    ) except? 0xFFFFFFFF
    cpdef object send_transfer_parts(self, bytes head, bytes header, tuple parts)
    @cython.locals(connection=Carrier)
    cpdef write(self, bytes payload, bytes header, tuple parts)
    cpdef write_control(self, object control)
    @cython.locals(connection=Carrier, at=Py_ssize_t, buffer="unsigned char*")
    cpdef write_range(self, unsigned int head, unsigned int lo, unsigned int hi)
    cpdef point(self, unsigned int number, object offset)
    cpdef detach(self)
    @cython.locals(connection=Carrier)
    cpdef fail(self, object error)
    cpdef expected(self, object control)
    cpdef replay(self, object commands, dict fragments, long long following)
    cpdef give_up(self, long long low, long long high)
    @cython.locals(at=Py_ssize_t, lo=Py_ssize_t, hi=Py_ssize_t)
    cpdef write_octets(self, tuple item, object first, object end)

cdef class Carrier(Endpoint):
    cdef public bint reticent
    cdef public unsigned int max_frame_size
    cdef public unsigned long long body_max
    cdef public dict attached
    cdef public Session last
    cdef public list newsy
    cdef public unsigned int current
    cdef public list events

    cpdef write_segment(self, int kind, bint last, unsigned int channel, bytes payload)
    @cython.locals(limit=Py_ssize_t, whole=Py_ssize_t, flags=cython.int, end=Py_ssize_t,
                   size=Py_ssize_t, at=Py_ssize_t, buffer="unsigned char*")
    cpdef write_part(
        self, int kind, bint last, unsigned int channel, bytes payload, Py_ssize_t lo, Py_ssize_t hi
    )
    cpdef write_body(self, unsigned int channel, tuple parts)

    cdef on_transfer(
        self, Session session, const unsigned char* d, Py_ssize_t args, Py_ssize_t args_end,
        Py_ssize_t header, Py_ssize_t header_end, Py_ssize_t body, Py_ssize_t body_end
    )
    cpdef on_transfer_large(
        self, Session session, bytes start, Py_ssize_t args, Py_ssize_t args_end,
        Py_ssize_t header, Py_ssize_t header_end, tuple parts, unsigned long long body_size
    )
    cdef on_accept(self, Session session, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    cpdef object sink_of(self, Session session, bytes header)
    cpdef on_command(self, Session session, object command, bytes header, tuple parts)
    cpdef on_result(self, Session session, unsigned int command_id, object value)
    cpdef on_exception(self, Session session, object exception)
    cpdef on_completed(self, Session session, unsigned int lo, unsigned int hi)
    cpdef on_session_control(self, Session session, object control)
    cpdef object choose_timeout(self, Session session, object requested)
    cpdef on_detached(self, Session session, unsigned int channel, int code)
    cpdef on_session_failed(self, Session session, object error)
    cpdef on_resumed(self, Session session, bint kept)
    cpdef on_given_up(self, Session session, unsigned int lo, unsigned int hi)

cdef unsigned int code_of(bytes command) except? 0xFFFFFFFF
