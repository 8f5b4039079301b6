# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.stream_headers cimport with_offset
from headrace.gateway.conversion.convert cimport Converter, body_of_frames
from headrace.model.message cimport (
    C_KIND_MASK, C_KIND_TRANSFER, C_REDELIVERED, Message, new_message,
)
from headrace.model.queue.dispatch cimport Consumer, ServedMessages
from headrace.model.queue.ring cimport Ring
from headrace.protocol.v0_10.attachment cimport Carrier
from headrace.protocol.v0_10.session.session cimport Session as ProtocolSession
from headrace.wire.memory cimport cut, get32

cdef Py_ssize_t RING_SLACK
cdef Py_ssize_t RUNS_MAX
cdef Py_ssize_t BROWSED_MAX
cdef long long CREDIT_MAX
cdef unsigned int SERIAL_MASK
cdef unsigned int SERIAL_SIGN
cdef long long SERIAL_SPAN
cdef long long INFINITE
cdef long long UNLIMITED
cdef int ACCEPT
cdef int REQUEUE
cdef int DISCARD
cdef int RELEASE

cdef class Run:
    cdef public unsigned int first
    cdef public unsigned int count
    cdef public Subscription subscription
    cdef public long long octets
    cdef public unsigned int window

cdef class Subscription(Consumer):
    cdef public Holder session
    cdef public int accept_mode
    cdef public bytes method
    cdef public bytes head
    cdef public bint window
    cdef public unsigned int window_number
    cdef public long long credit_messages
    cdef public long long credit_octets
    cdef public bint limited
    cdef public Converter converter
    cdef public long long flushing
    cdef public unsigned int number
    cdef public bint cancelled_by_client

    @cython.locals(link=Carrier, starving=dict)
    cpdef bint can(self) except -1
    cpdef int accepts(self, Message message) except -1
    @cython.locals(data=bytes, at=Py_ssize_t, size=Py_ssize_t)
    cpdef long long size_of(self, Message message) except -1
    cpdef add_credit(self, bint octets, long long value)
    cpdef stop(self)
    cpdef select(self, bint selective)
    cpdef restore(self, long long count, long long octets, unsigned int window)
    cpdef attach(self)
    @cython.locals(data=bytes, address_len=Py_ssize_t, at=Py_ssize_t, parts=tuple, header=bytes,
                   lo=Py_ssize_t, hi=Py_ssize_t, body=bytes, body_lo=Py_ssize_t,
                   body_hi=Py_ssize_t, session=Holder, number=cython.uint)
    cpdef deliver(self, Message message)
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, header=bytes, body=bytes, body_lo=Py_ssize_t,
                   message=Message)
    cdef int put(
        self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t address_len, Py_ssize_t end,
        int redelivered,
    ) except -1
    @cython.locals(session=Holder, size=Py_ssize_t, number=cython.uint)
    cdef int put_transfer(
        self, bytes header, const unsigned char* d, Py_ssize_t body_lo, Py_ssize_t body_hi
    ) except -1
    cpdef hold(self, unsigned long long position)
    cpdef cancelled(self)
    cpdef looked(self)
    cpdef ended(self)
    cpdef failed(self, object error)

cdef class Holder(ProtocolSession):
    cdef public dict subscriptions
    cdef public dict ended_tags
    cdef public unsigned int base
    cdef public Ring ring
    cdef public dict old
    cdef public dict browsed
    cdef public dict parted
    cdef public dict returning
    cdef public long long unsettled
    cdef public object runs
    cdef Run last_run
    cdef public object transaction
    cdef public bint durable
    cdef public dict touched

    @cython.locals(ring=Ring, gap=cython.uint)
    cdef remember(self, unsigned int number, Message message)
    @cython.locals(ring=Ring, message=Message)
    cdef spill(self, Py_ssize_t count)
    @cython.locals(ring=Ring)
    cdef trim(self)
    cdef remember_browsed(self, unsigned int number, Message message, Subscription by)
    @cython.locals(run=Run)
    cdef charge(self, Subscription by, unsigned int number, long long octets)
    @cython.locals(run=Run, before=cython.uint, reach=cython.uint, inside=cython.longlong)
    cpdef completed(self, unsigned int lo, unsigned int hi)
    @cython.locals(run=Run, first=Run, rest=Run, start=cython.longlong, end=cython.longlong)
    cpdef complete_behind(self, unsigned int lo, unsigned int hi)
    @cython.locals(ring=Ring, number=cython.uint, end=Py_ssize_t, at=Py_ssize_t, message=Message,
                   size=cython.uint)
    cdef settle_range(self, unsigned int lo, unsigned int hi, int outcome)
    @cython.locals(consumer=Consumer, queue=ServedMessages)
    cdef apply(self, unsigned int number, Message message, int outcome)
    cpdef settle_in_work(self, unsigned int number, Message message, ServedMessages queue, int outcome)
    cpdef subscription_cancelled(self, Subscription subscription)

@cython.locals(distance=cython.uint)
cpdef long long serial_distance(unsigned int a, unsigned int b) noexcept
