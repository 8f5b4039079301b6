# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.frames cimport (
    C_BODY, C_CHANNEL_AT, C_END, C_FLAGS_AT, C_HEADER, C_OVERHEAD, C_PAYLOAD_AT, C_PUBLISH_END_LEN,
    C_SIZE_AT,
)
from headrace.gateway.conversion.convert cimport Converter
from headrace.gateway.v0_x.peer cimport Peer
from headrace.model.message cimport Message
from headrace.protocol.v0_x.channel cimport Channel as ProtocolChannel
from headrace.wire.memory cimport copy, cut, get16, get32, put16, put32
from headrace.wire.property_bits cimport (
    HAS_HEADERS,
)


cdef class ContentOut(ProtocolChannel):
    cdef public Peer connection

    @cython.locals(connection=Peer)
    cdef write_content(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end)
    @cython.locals(connection=Peer, out="unsigned char*", at=Py_ssize_t, size=Py_ssize_t,
                   number=cython.uint)
    cdef write_frames(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end)
    @cython.locals(size=Py_ssize_t)
    cdef bint must_split(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end) except -1
    @cython.locals(connection=Peer, limit=Py_ssize_t, kind=cython.uint, size=Py_ssize_t,
                   at=Py_ssize_t, stop=Py_ssize_t, piece=Py_ssize_t, out="unsigned char*",
                   tail=Py_ssize_t)
    cdef write_split(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end)
    @cython.locals(connection=Peer, size=Py_ssize_t, header=bytes)
    cdef write_plain(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t end)
    @cython.locals(connection=Peer)
    cdef bytes plain(self, bytes payload)
    @cython.locals(data=bytes, at=Py_ssize_t)
    cpdef bytes basic_header(self, Converter converter, Message message)
    @cython.locals(connection=Peer, data=bytes, at=Py_ssize_t, end=Py_ssize_t, limit=Py_ssize_t,
                   piece=Py_ssize_t, out="unsigned char*", tail=Py_ssize_t)
    cdef write_converted(self, bytes header, Message message)
