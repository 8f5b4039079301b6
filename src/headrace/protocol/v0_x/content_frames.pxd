# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.frames cimport (
    C_ARGUMENTS_AT, C_BODY, C_BODY_SIZE_AT, C_CHANNEL_AT, C_END, C_HEADER, C_NO_PROPERTIES,
    C_OVERHEAD, C_PAYLOAD_AT, C_PUBLISH_ADDRESS_AT, C_PUBLISH_END_LEN, C_SIZE_AT, make_frame,
)
from headrace.protocol.v0_x.channel cimport Channel, DeliveryCollector
from headrace.protocol.output cimport BufferPool
from headrace.protocol.v0_x.upcalls cimport Upcalls
from headrace.spec.ids cimport BASIC_PUBLISH
from headrace.wire.property_bits cimport BASIC_HEADER
from headrace.wire.memory cimport cut, get16, get32, get64

cdef unsigned long long INLINE_BODY_MAX
cdef Py_ssize_t INLINE_WAIT_MAX
cdef unsigned int TICKET_CUSTOMARY

@cython.final
cdef class ContentReader:
    cdef Upcalls owner
    cdef BufferPool pool
    cdef dict channels
    cdef bint is_server
    cdef object version
    cdef bint is_early
    cdef unsigned int frame_max
    cdef unsigned int frame_limit
    cdef unsigned long long body_max
    cdef Py_ssize_t frame_end
    cdef bint is_replaying

    cpdef set_version(self, object version)

    @cython.locals(args=Py_ssize_t, key=Py_ssize_t, head=Py_ssize_t, size=Py_ssize_t, position=Py_ssize_t,
                   body_size=cython.ulonglong, received_size=cython.ulonglong, is_whole=cython.bint)
    cdef Py_ssize_t publish_frames(
        self, Channel channel, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t length
    ) except? -1
    @cython.locals(head=Py_ssize_t, size=Py_ssize_t, position=Py_ssize_t, waits=cython.bint,
                   body_size=cython.ulonglong, received_size=cython.ulonglong)
    cdef Py_ssize_t deliver_frames(
        self, Channel channel, const unsigned char* buffer, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t length,
        bint first
    ) except? -1
    @cython.locals(class_id=cython.uint, expected=cython.uint, body_size=cython.ulonglong)
    cdef header_frame(self, Channel channel, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(total=cython.ulonglong, limit=cython.ulonglong, other=Channel)
    cdef check_unfinished(self, Channel channel, unsigned long long body_size)
    cdef body_frame(self, Channel channel, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(address=bytes, header=bytes, data=bytes, start=bytes, body=bytes,
                   body_size=cython.ulonglong)
    cdef complete(self, Channel channel)
