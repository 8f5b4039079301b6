# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.frames cimport (
    C_ARGUMENTS_AT, C_CHANNEL_AT, C_END, C_METHOD, C_OVERHEAD, C_PAYLOAD_AT, C_PUBLISH_END_LEN,
    C_SIZE_AT, C_TAG_AND_FLAG_LEN, C_TAG_LEN,
)
from headrace.gateway.v0_x.peer cimport Peer
from headrace.gateway.messages.unsettled cimport Unsettled
from headrace.gateway.v0_x.channel.content_writer cimport ContentWriter
from headrace.model.message cimport C_REDELIVERED, Message
from headrace.model.tallies cimport ChannelTally
from headrace.spec.ids cimport BASIC_GET_OK
from headrace.wire.memory cimport copy, put16, put32, put64

cdef long long COUNT_MAX

cdef enum:
    C_GET_OK_LEN = 17
    C_COUNT_LEN = 4

cdef class Deliveries(ContentWriter):
    cdef public ChannelTally tally
    cdef public unsigned long long untagged
    cdef public bint flow
    cdef public unsigned long long tag
    cdef public Unsettled unsettled
    cdef public long long unacked
    cdef public long long unacked_bytes
    cdef public long long prefetch
    cdef public long long prefetch_size
    cdef public set refused
    cdef public dict consumers

    cpdef record_delivery(self, Message message)
    @cython.locals(tally=ChannelTally, tagged_count=cython.ulonglong)
    cpdef ChannelTally update_tally(self)
    cpdef count_get(self, bint no_ack)
    @cython.locals(connection=Peer, data=bytes, address_len=Py_ssize_t, content=Py_ssize_t,
                   end=Py_ssize_t, out="unsigned char*", position=Py_ssize_t)
    cpdef write_get_ok(
        self, Message message, long long ready_count, bytes converted, bint no_ack
    )
