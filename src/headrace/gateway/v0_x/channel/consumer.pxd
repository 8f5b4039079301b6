# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.frames cimport (
    C_CHANNEL_AT, C_END, C_FLAGS_AT, C_HEADER, C_METHOD, C_OVERHEAD, C_PAYLOAD_AT, C_PROPERTIES_AT,
    C_PUBLISH_END_LEN, C_SIZE_AT, C_TAG_AND_FLAG_LEN, C_TAG_LEN,
)
from headrace.gateway.conversion.convert cimport Converter
from headrace.gateway.v0_x.peer cimport Peer
from headrace.gateway.messages.stream_headers cimport with_offset
from headrace.gateway.v0_x.channel.deliveries cimport Deliveries
from headrace.model.message cimport C_KIND_MASK, C_REDELIVERED, Message
from headrace.model.queue.destination cimport C_ACCEPTED, C_NEVER, C_NO_ROOM, Consumer
from headrace.protocol.output cimport C_SHARE_MIN
from headrace.wire.memory cimport copy, cut, get16, get32, put16, put32, put64
from headrace.wire.property_bits cimport (
    HAS_CONTENT_ENCODING, HAS_CONTENT_TYPE, HAS_HEADERS,
)

cdef bytes STREAM_ENTRIES

cdef enum:
    C_STREAM_ENTRIES_LEN = 54
    C_OFFSET_AT = 17
    C_ARRIVAL_AT = 46
    C_TABLE_SIZE_LEN = 4
    C_RECORD_ROOM = 64

cdef class BasicConsumer(Consumer):
    cdef public Peer connection
    cdef public Deliveries channel
    cdef public long long prefetch
    cdef public long long unacked
    cdef public Converter converter
    cdef public bytes prefix
    cdef Py_ssize_t prefix_len

    @cython.locals(connection=Peer, channel=Deliveries, waiting=Py_ssize_t)
    cpdef bint has_room(self) except -1
    @cython.locals(channel=Deliveries)
    cpdef int evaluate(self, Message message) except -1
    @cython.locals(channel=Deliveries, redelivered=cython.int, data=bytes)
    cpdef deliver(self, Message message)
    @cython.locals(channel=Deliveries, redelivered=cython.int, data=bytes, header=bytes)
    cdef deliver_transfer(self, Message message)
    cdef int put(
        self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t address_len, Py_ssize_t end,
        int redelivered,
    ) except -1
    @cython.locals(connection=Peer, channel=Deliveries, prefix_len=Py_ssize_t, content=Py_ssize_t,
                   out="unsigned char*", position=Py_ssize_t, number=cython.uint)
    cdef int write(
        self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t address_len, Py_ssize_t end,
        int redelivered,
    ) except -1
    cpdef bint lags(self) except -1
    @cython.locals(connection=Peer, start=Py_ssize_t, position=Py_ssize_t, end=Py_ssize_t)
    cdef write_shared(self, bytes data, Py_ssize_t address_len, int redelivered)
    cpdef bint accepts_records(self) except -1
    @cython.locals(connection=Peer, channel=Deliveries, content=Py_ssize_t, size=Py_ssize_t,
                   flags=cython.uint, position=Py_ssize_t, stop=Py_ssize_t,
                   table_size=Py_ssize_t, headers_end=Py_ssize_t, data=bytes, prefix_len=Py_ssize_t,
                   out="unsigned char*", tail=Py_ssize_t, number=cython.uint)
    cdef int put_record(
        self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t address_len, Py_ssize_t end,
        unsigned long long offset, unsigned long long arrived_ms,
    ) except -1
    @cython.locals(connection=Peer, data=bytes)
    cdef put_large(self, Message message, int redelivered)
    cpdef on_redelivery(self)
    cpdef delay_deliveries(self, unsigned long long position)
    cpdef on_cancel(self)
    cpdef on_queue_end(self)
    cpdef on_failure(self, object error)

cdef class GetConsumer(Consumer):
    cdef public Peer connection
    cdef public object channel

    cpdef on_redelivery(self)
    cpdef delay_deliveries(self, unsigned long long position)


cdef bint may_have_stream_entry(const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end) noexcept
