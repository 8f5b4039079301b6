# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.v0_x.peer cimport Peer
from headrace.gateway.v0_x.channel.channel cimport Channel
from headrace.gateway.v0_x.connection.publish_receiver cimport PublishReceiver
from headrace.protocol.v0_x.channel cimport Channel as ProtocolChannel
from headrace.protocol.v0_x.upcalls cimport Upcalls

cdef class ConnectionOwner(Upcalls):
    cdef Peer connection
    cdef object context
    cdef PublishReceiver publish_receiver

    cpdef on_header(self, object version)
    cpdef on_rejected(self, bytes header)
    cpdef on_failed(self, ProtocolChannel channel, object error)
    cpdef on_closed(self)
    @cython.locals(waiting=list, channel=Channel)
    cpdef on_turn_end(self)
    cpdef object explain(self, object error, unsigned int method)
    cpdef pause_reading(self, bint paused)
    cpdef bint will_answer(self) except -1
    cpdef ProtocolChannel make_channel(self, unsigned int number)
    cpdef on_method(self, ProtocolChannel channel, unsigned int number, object method)
    cpdef on_channel_removed(self, ProtocolChannel channel)
    cpdef resume_later(self, ProtocolChannel channel)
    cpdef object body_sink(
        self, ProtocolChannel channel, object method, bytes header, unsigned long long body_size
    )
    cpdef on_content(self, ProtocolChannel channel, object method, bytes header, bytes body)
    cpdef on_ticket(self, ProtocolChannel channel, unsigned int ticket, bytes address)
    cdef on_publish(
        self, ProtocolChannel channel, const unsigned char* buffer, Py_ssize_t args,
        Py_ssize_t address_len, Py_ssize_t header, Py_ssize_t end, unsigned long long body_size
    )
    cpdef on_publish_large(
        self, ProtocolChannel channel, bytes start, Py_ssize_t address_len, tuple parts,
        unsigned long long body_size
    )
    cpdef on_ack(self, ProtocolChannel channel, unsigned long long delivery_tag, int multiple)
