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


cdef class ContentWriter(ProtocolChannel):
    cdef public Peer connection

    @cython.locals(connection=Peer)
    cdef write_content(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(connection=Peer, out="unsigned char*", position=Py_ssize_t, size=Py_ssize_t,
                   number=cython.uint)
    cdef write_frames(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(size=Py_ssize_t)
    cdef bint must_split(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end) except -1
    @cython.locals(connection=Peer, limit=Py_ssize_t, frame_type=cython.uint, size=Py_ssize_t,
                   position=Py_ssize_t, stop=Py_ssize_t, chunk_size=Py_ssize_t, out="unsigned char*",
                   tail=Py_ssize_t)
    cdef write_split(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(connection=Peer, size=Py_ssize_t, header=bytes)
    cdef write_plain(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(connection=Peer)
    cdef bytes make_plain(self, bytes payload)
    @cython.locals(data=bytes, position=Py_ssize_t)
    cpdef bytes basic_header(self, Converter converter, Message message)
    @cython.locals(connection=Peer, data=bytes, position=Py_ssize_t, end=Py_ssize_t, limit=Py_ssize_t,
                   chunk_size=Py_ssize_t, out="unsigned char*", tail=Py_ssize_t)
    cdef write_converted(self, bytes header, Message message)
