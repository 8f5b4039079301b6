# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.confirm cimport ConfirmLine
from headrace.gateway.conversion.convert cimport Converter
from headrace.gateway.peer cimport Peer
from headrace.model.message cimport C_KIND_MASK, C_REDELIVERED, Message
from headrace.model.queue cimport Queue
from headrace.model.served cimport Consumer, ServedMessages
from headrace.model.ring cimport Ring
from headrace.protocol.content cimport Channel as ProtocolChannel
from headrace.wire.memory cimport copy, cut, get16, get32, put16, put32, put64

cdef enum:
    C_ACCEPT = 0
    C_REQUEUE = 1
    C_ANSWER_NACK = 0x4000000000000000  # A shift would be one of C int.

cdef Py_ssize_t RING_SLACK
cdef unsigned int HEADERS
cdef bytes ENTRIES
cdef Py_ssize_t ENTRIES_LEN
cdef Py_ssize_t RECORD_ROOM

cdef class Channel(ProtocolChannel):
    cdef public Peer connection
    cdef public bint flow
    cdef public unsigned long long tag
    cdef public unsigned long long base
    cdef public Ring ring
    cdef public dict held
    cdef public dict late
    cdef public long long unacked
    cdef public long long unacked_bytes
    cdef public long long prefetch
    cdef public long long prefetch_size
    cdef public long long consumer_prefetch
    cdef public dict consumers
    cdef public dict getters
    cdef public Converter converter
    cdef public object message_side
    cdef public str last_queue
    cdef public set refused
    cdef public bytes id
    cdef public unsigned int ticket
    cdef public bytes ticket_address
    cdef public Queue reply_queue
    cdef public bint confirms
    cdef public bint unflushed
    cdef public bint tx
    cdef public bint dtx
    cdef public unsigned long long seq
    cdef public unsigned long long confirmed
    cdef public unsigned long long queued
    cdef public list tx_publishes
    cdef public dict tx_settles
    cdef public long long tx_octets
    cdef public object work
    cdef public object files
    cdef public object packets
    cdef public list owed

    cpdef skip_tag(self)
    @cython.locals(ring=Ring)
    cpdef int remember(self, Message message) except -1
    @cython.locals(ring=Ring, message=Message)
    cdef shorten_ring(self)
    @cython.locals(connection=Peer, data=bytes, address_len=Py_ssize_t, content=Py_ssize_t,
                   end=Py_ssize_t, out="unsigned char*", at=Py_ssize_t)
    cpdef write_get_ok(self, Message message, long long ready_count, bytes converted)
    @cython.locals(data=bytes, at=Py_ssize_t)
    cpdef bytes basic_header(self, Converter converter, Message message)
    @cython.locals(connection=Peer, data=bytes, at=Py_ssize_t, end=Py_ssize_t, limit=Py_ssize_t,
                   piece=Py_ssize_t, out="unsigned char*", tail=Py_ssize_t)
    cdef write_converted(self, bytes header, Message message)
    @cython.locals(connection=Peer)
    cdef write_content(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end)
    @cython.locals(connection=Peer, out="unsigned char*", at=Py_ssize_t, size=Py_ssize_t,
                   number=cython.uint)
    cdef write_frames(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end)
    @cython.locals(connection=Peer)
    cdef bytes plain(self, bytes payload)
    @cython.locals(connection=Peer, size=Py_ssize_t, header=bytes)
    cdef write_plain(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end)
    @cython.locals(size=Py_ssize_t)
    cdef bint must_split(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end) except -1
    @cython.locals(connection=Peer, limit=Py_ssize_t, kind=cython.uint, size=Py_ssize_t,
                   at=Py_ssize_t, stop=Py_ssize_t, piece=Py_ssize_t, out="unsigned char*",
                   tail=Py_ssize_t)
    cdef write_split(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end)
    @cython.locals(ring=Ring, known=cython.bint)
    cpdef bint holds(self, unsigned long long tag) except -1
    cpdef check_tag(self, unsigned long long tag)
    @cython.locals(ring=Ring)
    cpdef settle(self, unsigned long long tag, bint multiple, int outcome)
    @cython.locals(ring=Ring, message=Message, consumer=Consumer)
    cpdef settle_one(self, unsigned long long tag, int outcome)
    @cython.locals(ring=Ring, message=Message, consumer=Consumer, last=Consumer)
    cpdef settle_range(self, unsigned long long tag, int outcome)
    @cython.locals(ring=Ring)
    cdef int trim(self) except -1
    @cython.locals(queue=ServedMessages, fed=cython.bint)
    cdef int apply(self, Message message, Consumer consumer, int outcome) except -1
    cdef int release_credit(self, BasicConsumer consumer) except -1
    @cython.locals(other=Consumer)
    cpdef refresh(self, Consumer consumer)
    cdef note_settles(self, unsigned long long tag, bint multiple, int outcome)
    @cython.locals(ring=Ring, message=Message, at=Py_ssize_t)
    cpdef list held_up_to(self, Consumer consumer, unsigned long long last)
    @cython.locals(message=Message)
    cdef Consumer of(self, unsigned long long tag)
    @cython.locals(message=Message, queue=ServedMessages, tag=cython.ulonglong)
    cpdef return_late(self, Consumer consumer, unsigned long long last)
    cdef settle_late(self, unsigned long long tag)
    @cython.locals(consumer=BasicConsumer)
    cdef BasicConsumer forget_late(self, unsigned long long tag)
    @cython.locals(ring=Ring, message=Message, consumer=Consumer)
    cpdef list take_back(self)
    @cython.locals(queue=ServedMessages, message=Message, consumer=Consumer)
    cpdef requeue_all(self)
    cdef int publish_seen(self) except -1
    cpdef publish_refused(self)
    cpdef flush_confirms(self)
    cpdef released(self, unsigned long long token)

cdef class BasicConsumer(Consumer):
    cdef public Peer connection
    cdef public Channel channel
    cdef public long long prefetch
    cdef public long long unacked
    cdef public Converter converter
    cdef public bytes prefix
    cdef Py_ssize_t prefix_len

    @cython.locals(connection=Peer, channel=Channel)
    cpdef bint can(self) except -1
    @cython.locals(channel=Channel)
    cpdef int accepts(self, Message message) except -1
    @cython.locals(channel=Channel, redelivered=cython.int, data=bytes)
    cpdef deliver(self, Message message)
    @cython.locals(channel=Channel, redelivered=cython.int, data=bytes, header=bytes)
    cdef deliver_transfer(self, Message message)
    cdef int put(
        self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t address_len, Py_ssize_t end,
        int redelivered,
    ) except -1
    @cython.locals(connection=Peer, channel=Channel, prefix_len=Py_ssize_t, content=Py_ssize_t,
                   out="unsigned char*", at=Py_ssize_t, number=cython.uint)
    cdef int write(
        self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t address_len, Py_ssize_t end,
        int redelivered,
    ) except -1
    cpdef bint pours(self) except -1
    @cython.locals(connection=Peer, channel=Channel, content=Py_ssize_t, size=Py_ssize_t,
                   first=Py_ssize_t, flags=cython.uint, at=Py_ssize_t, stop=Py_ssize_t,
                   table=Py_ssize_t, behind=Py_ssize_t, data=bytes, prefix_len=Py_ssize_t,
                   out="unsigned char*", tail=Py_ssize_t, number=cython.uint)
    cdef int put_record(
        self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t address_len, Py_ssize_t end,
        unsigned long long offset, unsigned long long arrived_ms,
    ) except -1
    @cython.locals(connection=Peer, data=bytes)
    cdef put_large(self, Message message, int redelivered)
    cpdef hold(self, unsigned long long position)
    cpdef cancelled(self)
    cpdef ended(self)
    cpdef failed(self, object error)

cdef class Getter(Consumer):
    cdef public Peer connection
    cdef public object channel

    cpdef hold(self, unsigned long long position)


cdef bint mentions_stream(const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi) noexcept

@cython.locals(head=Py_ssize_t, size=Py_ssize_t, payload=bytes)
cdef bytes with_offset(
    bytes data, Py_ssize_t address_len, object offset, object arrived_ms
)
