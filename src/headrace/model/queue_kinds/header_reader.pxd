# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_PAGED, Message
from headrace.model.ports cimport Store

@cython.final
cdef class HeaderReader:
    cdef Store _store
    cdef object _host

    cpdef object read(self, Message message, str name)
