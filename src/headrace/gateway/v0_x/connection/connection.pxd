# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.frames cimport (
    C_ACK_FLAG_AT, C_ACK_LEN, C_ARGUMENTS_AT, C_CHANNEL_AT, C_END, C_METHOD, C_OVERHEAD,
    C_PAYLOAD_AT, C_SIZE_AT,
)
from headrace.gateway.v0_x.peer cimport Peer
from headrace.gateway.v0_x.channel.channel cimport Channel
from headrace.gateway.v0_x.connection.owner cimport ConnectionOwner
from headrace.gateway.v0_x.connection.publish_receiver cimport PublishReceiver
from headrace.model.counters cimport Counters
from headrace.model.ports cimport Store
from headrace.model.queue.destination cimport Consumer, Destination
from headrace.protocol.v0_x.connection cimport Connection
from headrace.protocol.v0_x.channel cimport C_CLOSING
from headrace.protocol.v0_x.channel cimport Channel as ProtocolChannel
from headrace.spec.ids cimport BASIC_ACK, BASIC_CONSUME
from headrace.wire.memory cimport put16, put32, put64
from headrace.protocol.v0_x.handshake cimport (
    STATE_CLOSED, STATE_CLOSING, STATE_OPEN,
)

cdef enum:
    C_ANSWER_NACK = 0x4000000000000000  # A shift would be one of C int.

cdef class GatewayConnection(Peer):
    cdef public object context
    cdef public Counters counters
    cdef public Store store
    cdef public PublishReceiver publish_receiver
    cdef public bint loopback
    cdef public str mechanism
    cdef public dict plug_ins
    cdef public dict capabilities
    cdef public dict client_properties
    cdef public object quirks

    cpdef open_host(self, object vhost, Store store, object pending_confirms)
    @cython.locals(gateway_channel=Channel)
    cpdef send_confirm(self, object channel, unsigned long long token)
    @cython.locals(out="unsigned char*", position=Py_ssize_t)
    cdef write_ack(self, Channel channel, unsigned long long seq)
    cpdef object explain(self, error)
    cpdef inject(self, bytes frames)
    @cython.locals(channel=ProtocolChannel)
    cpdef reply(self, unsigned int number, object method)
    cpdef reply_when_durable(self, Channel channel, object method)
    cpdef on_consumer_cancelled(self, object channel, str tag)
    cpdef starve(self, Destination queue)
    cpdef on_output_drained(self)
    @cython.locals(channel=Channel, consumer=Consumer)
    cpdef refresh_all(self)
    cpdef end(self)
