# SPDX-License-Identifier: Apache-2.0
import cython
from headrace.wire.memory cimport get32, get64, put32, put64

ctypedef unsigned char u8
ctypedef unsigned int u32
ctypedef unsigned long long u64

cdef extern from *:
    """
    static inline unsigned long long headrace_word(const unsigned char *d, Py_ssize_t at) {
        unsigned long long v;
        __builtin_memcpy(&v, d + at, 8);
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        v = __builtin_bswap64(v);
    #endif
        return v;
    }
    """
    ctypedef unsigned long long u128 "unsigned __int128"
    u64 word "headrace_word" (const u8* d, Py_ssize_t at) noexcept nogil

cdef enum:
    C_HEAD = 16
    C_MESSAGE_HEAD = 56
    C_MESSAGE = 1
    C_MOVED = 2
    C_SETTLED = 3
    C_MARKED = 4
    C_RESERVED = 5
    C_DROPPED = 6
    C_GROUP = 7
    C_BEGIN = 8
    C_COMMIT = 9
    C_SEALED = 10
    C_CLEAN = 11
    C_PREPARED = 12
    C_DECIDED = 13
    C_FACT = 14
    C_RETURNED = 15
    C_COUNTED = 16
    C_DEFINED = 17
    C_RETIRED = 18
    C_TYPE_MAX = 18

@cython.locals(
    k3=u128, k4=u128, k5=u128, k6=u128, low=u128,
    high=u64, rest=u64, x=u128, w0=u128, w1=u128, w2=u128, w3=u128, w4=u128, w5=u128, w6=u128, w7=u128,
)
cpdef u64 residue(u64 prefix, const u8* data, Py_ssize_t first, Py_ssize_t end) except? 1

@cython.locals(mixed=u64, factor=u64, low=u64)
cpdef u32 head_word(u64 seed, u32 length, u32 type) except? 1

cdef u64 first_word(u64 seed, u64 length, u64 type) except? 1

@cython.locals(end=Py_ssize_t)
cdef int seal(u8* buffer, Py_ssize_t offset, u64 seed, u32 length, u32 type) except -1

@cython.locals(x=u64, part=bytes)
cdef int seal_with_parts(
    u8* buffer, Py_ssize_t offset, u64 seed, u32 length, u32 type, Py_ssize_t own, list parts
) except -1

@cython.locals(length=u32, type=u32)
cdef u32 check_head(const u8* data, Py_ssize_t offset, Py_ssize_t end, u64 seed) except? 1

@cython.locals(length=u32, stop=Py_ssize_t, first=u64)
cpdef u32 check_record(const u8* data, Py_ssize_t offset, Py_ssize_t end, u64 seed) except? 1

cpdef Py_ssize_t find_record_from(const u8* data, Py_ssize_t offset, Py_ssize_t end, u64 seed) except? -1
