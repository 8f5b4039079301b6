# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.channel cimport Channel
from headrace.wire.memory cimport cut, get32

cdef class Upcalls:
    cdef public list events

    cpdef on_header(self, object version)
    cpdef on_rejected(self, bytes header)
    cpdef on_heartbeat(self)
    cpdef on_failed(self, Channel channel, object error)
    cpdef on_closed(self)
    cpdef on_turn_end(self)
    cpdef object explain(self, object error, unsigned int method)
    cpdef pause_reading(self, bint paused)
    cpdef bint will_answer(self) except -1
    cpdef Channel make_channel(self, unsigned int number)
    cpdef on_method(self, Channel channel, unsigned int number, object method)
    cpdef on_channel_removed(self, Channel channel)
    cpdef resume_later(self, Channel channel)
    cpdef object body_sink(
        self, Channel channel, object method, bytes header, unsigned long long body_size
    )
    cpdef on_content(self, Channel channel, object method, bytes header, bytes body)
    cpdef on_ticket(self, Channel channel, unsigned int ticket, bytes address)
    cdef on_publish(
        self, Channel channel, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t header, Py_ssize_t end, unsigned long long body_size
    )
    cpdef on_publish_large(
        self, Channel channel, bytes start, Py_ssize_t address_len, tuple parts,
        unsigned long long body_size
    )
    cpdef on_ack(self, Channel channel, unsigned long long delivery_tag, int multiple)

cdef class EventCollector(Upcalls):
    cdef object version
    cdef bint is_server

    cpdef on_header(self, object version)
    cpdef on_rejected(self, bytes header)
    cpdef on_heartbeat(self)
    cpdef on_failed(self, Channel channel, object error)
    cpdef on_method(self, Channel channel, unsigned int number, object method)
    cpdef on_content(self, Channel channel, object method, bytes header, bytes body)
    cdef on_publish(
        self, Channel channel, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t header, Py_ssize_t end, unsigned long long body_size
    )
    @cython.locals(size=Py_ssize_t, position=Py_ssize_t)
    cdef object decode_publish(
        self, Channel channel, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t header, Py_ssize_t end
    )
    cpdef on_publish_large(
        self, Channel channel, bytes start, Py_ssize_t address_len, tuple parts,
        unsigned long long body_size
    )
    cpdef on_ack(self, Channel channel, unsigned long long delivery_tag, int multiple)
