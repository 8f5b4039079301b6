# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.v0_10.session.context cimport SessionContext
from headrace.gateway.v0_10.session.deliveries cimport Deliveries, serial_distance
from headrace.gateway.messages.stream_headers cimport with_offset
from headrace.gateway.conversion.convert cimport Converter, join_body_frames
from headrace.model.message cimport (
    C_KIND_MASK, C_KIND_TRANSFER, C_REDELIVERED, Message, new_message,
)
from headrace.model.queue.destination cimport C_ACCEPTED, C_NO_ROOM, Consumer
from headrace.model.tallies cimport ChannelTally
from headrace.protocol.v0_10.session_connection cimport SessionConnection
from headrace.protocol.v0_10.session.sent cimport SentCommands
from headrace.wire.memory cimport cut, get32

cdef Py_ssize_t RUNS_MAX
cdef long long CREDIT_MAX
cdef unsigned int SERIAL_MASK
cdef unsigned int SERIAL_SIGN
cdef long long INFINITE
cdef long long UNLIMITED

cdef class Run:
    cdef public unsigned int first
    cdef public unsigned int count
    cdef public Subscription subscription
    cdef public long long size
    cdef public unsigned int window

@cython.final
cdef class WindowCredit:
    cdef public object runs
    cdef Run last_run

    @cython.locals(run=Run)
    cdef charge(self, Subscription subscription, unsigned int number, long long size)
    @cython.locals(run=Run, before=cython.uint, last_distance=cython.uint, completed_count=cython.longlong)
    cpdef completed(self, unsigned int first, unsigned int last)
    @cython.locals(run=Run, before=Run, after=Run, start=cython.longlong, end=cython.longlong)
    cpdef complete_out_of_order(self, unsigned int first, unsigned int last)

cdef class Subscription(Consumer):
    cdef public SessionContext session
    cdef SentCommands sent
    cdef ChannelTally tally
    cdef Deliveries deliveries
    cdef WindowCredit windows
    cdef public int accept_mode
    cdef public bytes method
    cdef public bytes transfer_head
    cdef public bint is_window_mode
    cdef public unsigned int window_id
    cdef public long long credit_messages
    cdef public long long credit_bytes
    cdef public bint has_limits
    cdef public Converter converter
    cdef public long long flush_id
    cdef public unsigned int number
    cdef public bint cancelled_by_client

    @cython.locals(connection=SessionConnection, starving=dict)
    cpdef bint has_room(self) except -1
    cpdef int evaluate(self, Message message) except -1
    @cython.locals(data=bytes, position=Py_ssize_t, size=Py_ssize_t)
    cpdef long long credit_cost(self, Message message) except -1
    cpdef add_credit(self, bint in_bytes, long long value)
    cpdef stop(self)
    cpdef set_selective(self, bint selective)
    cpdef restore(self, long long count, long long size, unsigned int window)
    cpdef attach(self)
    @cython.locals(data=bytes, address_len=Py_ssize_t, position=Py_ssize_t, parts=tuple, header=bytes,
                   header_start=Py_ssize_t, header_end=Py_ssize_t, body=bytes, body_start=Py_ssize_t,
                   body_end=Py_ssize_t, number=cython.uint)
    cpdef deliver(self, Message message)
    @cython.locals(position=Py_ssize_t, size=Py_ssize_t, header=bytes, body=bytes, body_start=Py_ssize_t,
                   message=Message)
    cdef int put(
        self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t address_len, Py_ssize_t end,
        int redelivered,
    ) except -1
    @cython.locals(size=Py_ssize_t, number=cython.uint)
    cdef int put_transfer(
        self, bytes header, const unsigned char* buffer, Py_ssize_t body_start, Py_ssize_t body_end
    ) except -1
    cpdef on_redelivery(self)
    cpdef delay_deliveries(self, unsigned long long position)
    cpdef on_cancel(self)
    cpdef on_scan_end(self)
    cpdef on_queue_end(self)
    cpdef on_failure(self, object error)
