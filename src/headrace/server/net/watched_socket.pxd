# SPDX-License-Identifier: Apache-2.0

cdef class WatchedSocket:
    cdef public int fd
    cdef public bint reading
    cdef public bint writing

    cpdef read(self)
    cpdef write_more(self)
    cpdef flush(self)
    cpdef str name(self)
