# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.v0_x.channel cimport Channel
from headrace.gateway.peer cimport Peer
from headrace.gateway.route cimport Route, will_last
from headrace.model.message cimport C_LARGE, C_PERSISTENT, Message, new_message
from headrace.model.ports cimport Store
from headrace.model.queue cimport Queue
from headrace.model.served cimport Consumer
from headrace.model.tally cimport Tally
from headrace.model.work cimport Work
from headrace.protocol.content cimport Channel as ProtocolChannel
from headrace.wire.memory cimport cut, get16, get32, same
from headrace.wire.properties cimport BasicScan, scan_basic

cdef enum:
    C_ANSWER_COMMIT = 0x8000000000000000  # A shift would be one of C int.

cdef Py_ssize_t ROUTES_MAX
cdef long long TX_OCTETS_MAX
cdef int NO_ROUTE
cdef int NO_CONSUMERS

cdef class Publisher(Peer):
    cdef public object context
    cdef public Tally tally
    cdef public Store store
    cdef public dict routes
    cdef public Route route
    cdef BasicScan scan
    cdef unsigned int mode
    cdef unsigned int priority
    cdef long long deadline_ms
    cdef bint asks
    cdef bint copied
    cdef tuple copies
    cdef bint numbered
    cdef tuple publishing
    cdef bint delays
    cdef long long delay_ms

    cdef on_publish(
        self, ProtocolChannel channel, const unsigned char* d, Py_ssize_t args,
        Py_ssize_t address_len, Py_ssize_t header, Py_ssize_t end, unsigned long long body_size
    )
    cpdef on_publish_large(
        self, ProtocolChannel channel, bytes start, Py_ssize_t address_len, tuple parts,
        unsigned long long body_size
    )
    @cython.locals(flags=cython.uint, size=cython.uint, route=Route, bits=cython.uint,
                   refused=cython.int, data=bytes)
    cdef publish(
        self, Channel channel, const unsigned char* d, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t header, Py_ssize_t end, unsigned long long body_size, tuple parts
    )
    @cython.locals(tally=Tally, seq=cython.ulonglong, position=cython.ulonglong,
                   refused=cython.int, message=Message, data=bytes, queue=Queue, kept=cython.bint,
                   consumer=Consumer)
    cdef int spread(
        self, Route route, const unsigned char* d, Py_ssize_t args, Py_ssize_t address_len,
        Py_ssize_t end, unsigned long long body_size, tuple parts
    ) except -1
    @cython.locals(scan=BasicScan, marks=cython.int)
    cdef examine(self, const unsigned char* d, Py_ssize_t lo, Py_ssize_t hi)
    @cython.locals(route=Route, refused=cython.int, size=cython.uint, delay_ms=cython.longlong)
    cdef publish_rewritten(
        self, Channel channel, bytes data, Py_ssize_t address_len, Py_ssize_t header,
        unsigned long long body_size, tuple parts
    )
    @cython.locals(waiting=Route)
    cdef Route put_off(self, Route route, long long delay_ms)
    @cython.locals(bits=cython.uint, lasting=cython.bint, queue=Queue)
    cdef int publish_once(
        self, Channel channel, Route route, tuple number, bytes data, Py_ssize_t address_len,
        Py_ssize_t header, unsigned long long body_size, tuple parts
    ) except -1
    cdef refuse(self, Channel channel, Route route)
    cdef publish_passing(
        self, Channel channel, Route route, bytes data, Py_ssize_t address_len, Py_ssize_t header,
        unsigned long long body_size, tuple parts, tuple number
    )
    @cython.locals(bits=cython.uint, queue=Queue, message=Message)
    cdef int pass_on(
        self, Channel channel, Route route, bytes data, Py_ssize_t address_len, Py_ssize_t header,
        unsigned long long body_size, tuple parts, tuple number, bint inside
    ) except -1
    @cython.locals(queue=Queue, bits=cython.uint)
    cdef int pass_whole(
        self, Channel channel, Route route, bytes data, Py_ssize_t address_len, Py_ssize_t header,
        unsigned long long body_size, tuple parts, tuple number
    ) except -2
    cpdef check_user_id(self, str user_id)
    @cython.locals(at=Py_ssize_t, name=bytes, head=bytes, tail=bytes)
    cdef bytes with_reply_to(
        self, Channel channel, const unsigned char* d, Py_ssize_t args, Py_ssize_t header,
        Py_ssize_t end
    )
    @cython.locals(generation=cython.ulonglong, route=Route)
    cdef Route find_route(
        self, bytes key, const unsigned char* d, Py_ssize_t header, Py_ssize_t size
    )
    @cython.locals(queue=Queue)
    cdef int publish_rarely(
        self, Channel channel, Route route, unsigned int bits, const unsigned char* d,
        Py_ssize_t args, Py_ssize_t address_len, Py_ssize_t header, Py_ssize_t end,
        unsigned long long body_size, tuple parts
    ) except -1
    @cython.locals(queue=Queue, header=Py_ssize_t, size=cython.uint, route=Route,
                   bits=cython.uint, delay_ms=cython.longlong)
    cpdef int publish_whole(
        self, Channel channel, bytes data, Py_ssize_t address_len, unsigned long long body_size,
        tuple parts
    ) except -2
    cdef send_back(
        self, Channel channel, int code, str text, const unsigned char* d, Py_ssize_t args,
        Py_ssize_t address_len, Py_ssize_t header, Py_ssize_t end, tuple parts
    )
    cdef publish_later(
        self, Channel channel, const unsigned char* d, Py_ssize_t args, Py_ssize_t end,
        Py_ssize_t address_len, Py_ssize_t header, unsigned long long body_size, tuple parts
    )
    @cython.locals(queue=Queue, message=Message, bits=cython.uint, work=Work)
    cdef publish_in_branch(
        self, Channel channel, bytes data, Py_ssize_t address_len, Py_ssize_t header,
        unsigned long long body_size, tuple parts, Route route
    )
    @cython.locals(size=Py_ssize_t, route=Route)
    cdef Route branch_route(self, bytes data, Py_ssize_t address_len, Py_ssize_t header)
    @cython.locals(store=Store)
    cpdef commit(self, Channel channel)
    @cython.locals(route=Route, bits=cython.uint)
    cdef publish_now(
        self, Channel channel, bytes data, Py_ssize_t address_len, Py_ssize_t header,
        unsigned long long body_size, tuple parts, unsigned int mode, unsigned int priority,
        long long deadline_ms, tuple copies, long long delay_ms
    )

@cython.locals(octet=cython.uint, found=cython.int)
cdef int marked(const unsigned char* d, Py_ssize_t at, Py_ssize_t end) noexcept
cpdef long long expiration_ms(bytes raw) except -1
cpdef tuple split_address(bytes address)
