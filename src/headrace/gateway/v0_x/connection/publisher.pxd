# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.messages.route cimport Route
from headrace.gateway.v0_x.channel.channel cimport Channel
from headrace.gateway.v0_x.connection.special_publish cimport Publish, SpecialPublisher, at_once
from headrace.protocol.v0_x.channel cimport Channel as ProtocolChannel
from headrace.spec.ids cimport BASIC_PUBLISH
from headrace.wire.memory cimport cut, get16, get32, same
from headrace.wire.properties cimport BasicScan, scan_basic
from headrace.wire.property_bits cimport (
    HAS_DELIVERY_MODE, HAS_EXPIRATION, HAS_HEADERS, HAS_PRIORITY, HAS_REPLY_TO, HAS_USER_ID,
)

cdef bytes REPLY_TO
cdef Py_ssize_t REPLY_TO_LEN

cdef class Publisher(SpecialPublisher):
    cdef BasicScan scan
    cdef bint asks
    cdef public bint takes_moments

    cdef on_publish(
        self, ProtocolChannel channel, const unsigned char* d, Py_ssize_t args,
        Py_ssize_t address_len, Py_ssize_t header, Py_ssize_t end, unsigned long long body_size
    )
    cpdef on_publish_large(
        self, ProtocolChannel channel, bytes start, Py_ssize_t address_len, tuple parts,
        unsigned long long body_size
    )
    @cython.locals(flags=cython.uint, size=cython.uint, route=Route, bits=cython.uint,
                   refused=cython.int, question=bytes, p=Publish)
    cdef publish(
        self, Channel channel, const unsigned char* d, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t header, Py_ssize_t end, unsigned long long body_size, tuple parts
    )
    @cython.locals(header=Py_ssize_t, route=Route, bits=cython.uint, p=Publish)
    cpdef int publish_whole(
        self, Channel channel, bytes data, Py_ssize_t address_len, unsigned long long body_size,
        tuple parts
    ) except -2
    @cython.locals(scan=BasicScan, marks=cython.int)
    cdef examine(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    cpdef long long expires_at(self, bytes expiration) except -1
    cpdef check_user_id(self, str user_id)
    @cython.locals(at=Py_ssize_t, name=bytes, head=bytes, tail=bytes)
    cdef bytes with_reply_to(
        self, Channel channel, const unsigned char* d, Py_ssize_t args, Py_ssize_t header,
        Py_ssize_t end
    )

@cython.locals(octet=cython.uint, found=cython.int)
cdef int marked(const unsigned char* d, Py_ssize_t at, Py_ssize_t end) noexcept
cpdef long long expiration_ms(bytes raw) except -1
