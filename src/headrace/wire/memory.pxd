# SPDX-License-Identifier: Apache-2.0
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

cdef extern from "<arpa/inet.h>" nogil:
    unsigned int ntohl(unsigned int) noexcept  # One instruction, where shifts of octets are ten.

ctypedef unsigned char u8
ctypedef unsigned short u16
ctypedef unsigned int u32
ctypedef unsigned long long u64
ctypedef long long i64

cdef inline void copy(u8* dst, Py_ssize_t at, const u8* src, Py_ssize_t lo, Py_ssize_t hi) noexcept:
    memcpy(dst + at, src + lo, <size_t>(hi - lo))

cdef inline bytes cut(const u8* src, Py_ssize_t lo, Py_ssize_t hi):
    return PyBytes_FromStringAndSize(<const char*>src + lo, hi - lo)

cdef inline bint same(bytes key, const u8* src, Py_ssize_t lo, Py_ssize_t hi) noexcept:
    return PyBytes_GET_SIZE(key) == hi - lo and memcmp(PyBytes_AS_STRING(key), src + lo, <size_t>(hi - lo)) == 0

cdef inline const u8* start(const u8[::1] octets) noexcept:
    return &octets[0] if octets.shape[0] else <const u8*>(<const char*>b"")

cdef inline Py_ssize_t native(const u8* src, Py_ssize_t index, Py_ssize_t width) noexcept:
    cdef int narrow
    cdef i64 wide
    if width == 4:
        memcpy(&narrow, src + 4 * index, 4)
        return narrow
    memcpy(&wide, src + 8 * index, 8)
    return <Py_ssize_t>wide

cdef inline u32 get16(const u8* src, Py_ssize_t at) noexcept:
    return (<u32>src[at] << 8) | src[at + 1]

cdef inline u32 get32(const u8* src, Py_ssize_t at) noexcept:
    cdef u32 value
    memcpy(&value, src + at, 4)
    return ntohl(value)

cdef inline u64 get64(const u8* src, Py_ssize_t at) noexcept:
    return (<u64>get32(src, at) << 32) | get32(src, at + 4)

cdef inline void put16(u8* dst, Py_ssize_t at, u32 value) noexcept:
    dst[at] = <u8>(value >> 8)
    dst[at + 1] = <u8>value

cdef inline void put32(u8* dst, Py_ssize_t at, u32 value) noexcept:
    dst[at] = <u8>(value >> 24)
    dst[at + 1] = <u8>(value >> 16)
    dst[at + 2] = <u8>(value >> 8)
    dst[at + 3] = <u8>value

cdef inline void put64(u8* dst, Py_ssize_t at, u64 value) noexcept:
    put32(dst, at, <u32>(value >> 32))
    put32(dst, at + 4, <u32>value)

cdef inline void store32(u8* dst, Py_ssize_t at, i64 value) noexcept:
    cdef int narrow = <int>value
    memcpy(dst + at, &narrow, 4)

cdef inline void store64(u8* dst, Py_ssize_t at, i64 value) noexcept:
    memcpy(dst + at, &value, 8)

cdef inline int load32(const u8* src, Py_ssize_t at) noexcept:
    cdef int value
    memcpy(&value, src + at, 4)
    return value
