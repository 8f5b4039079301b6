# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.protocol.v0_x.frames cimport (
    C_FLAGS_AT, C_NO_PROPERTIES, C_PAYLOAD_AT, C_PROPERTIES_AT, C_PUBLISH_END_LEN, C_SIZE_AT,
)
from headrace.gateway.v0_x.peer cimport Peer
from headrace.gateway.messages.distributor cimport Distributor, Publish
from headrace.gateway.messages.route cimport Route
from headrace.gateway.v0_x.channel.channel cimport Channel
from headrace.gateway.v0_x.connection.routes cimport Routes
from headrace.gateway.v0_x.connection.slow_path cimport (
    C_DIRECT_REPLY_TO, C_CC_KEYS, C_DELAYED, C_IMMEDIATE, C_PUBLISHING_ID, DetachedPublish, SlowPathReceiver,
)
from headrace.model.counters cimport Counters
from headrace.spec.ids cimport BASIC_PUBLISH
from headrace.wire.memory cimport cut, get16, get32, same
from headrace.wire.properties cimport BasicScan, scan_basic
from headrace.wire.property_bits cimport (
    HAS_DELIVERY_MODE, HAS_EXPIRATION, HAS_HEADERS, HAS_PRIORITY, HAS_REPLY_TO, HAS_USER_ID,
)

cdef enum:
    C_PERSISTENT_MODE = 2
    C_CC_LEN = 2
    C_BCC_LEN = 3
    C_DELAY_LEN = 7
    C_ID_LEN = 15

cdef bytes REPLY_TO
cdef Py_ssize_t REPLY_TO_LEN

@cython.final
cdef class PublishReceiver:
    cdef Peer connection
    cdef object context
    cdef Counters counters
    cdef public Distributor distributor
    cdef public Routes routes
    cdef SlowPathReceiver slow_path
    cdef Publish publishing
    cdef Route route
    cdef BasicScan scan
    cdef int features
    cdef public bint absolute_expirations

    @cython.locals(flags=cython.uint, size=cython.uint, route=Route,
                   bits=cython.uint, refused=cython.int, request=bytes, publish=Publish,
                   detached=DetachedPublish)
    cdef publish(
        self, Channel channel, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t header, Py_ssize_t end, unsigned long long body_size
    )
    cdef publish_large(
        self, Channel channel, bytes start, Py_ssize_t address_len, tuple parts,
        unsigned long long body_size
    )
    @cython.locals(header=Py_ssize_t, payload=Py_ssize_t, publish=Publish)
    cpdef int publish_content(
        self, Channel channel, bytes data, Py_ssize_t address_len, unsigned long long body_size,
        tuple parts
    ) except -2
    cpdef clear_routes(self)
    cpdef commit(self, Channel channel)
    @cython.locals(scan=BasicScan, publish=Publish, features=cython.int)
    cdef read_properties(self, const unsigned char* buffer, Py_ssize_t start, Py_ssize_t end)
    cpdef object expires_at(self, bytes expiration)
    cdef check_user_id(self, str user_id)
    @cython.locals(position=Py_ssize_t, size_at=Py_ssize_t, payload=Py_ssize_t, name=bytes, head=bytes, tail=bytes)
    cdef bytes with_reply_to(
        self, Channel channel, const unsigned char* buffer, Py_ssize_t args, Py_ssize_t header,
        Py_ssize_t end
    )

@cython.locals(length=cython.uint, features=cython.int)
cdef int find_features(const unsigned char* buffer, Py_ssize_t position, Py_ssize_t end) noexcept
cpdef long long expiration_ms(bytes raw) except -1
