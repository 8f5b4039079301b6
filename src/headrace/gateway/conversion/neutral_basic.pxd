# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.conversion.neutral cimport Properties
from headrace.wire.properties cimport BasicScan, scan_basic
from headrace.wire.table cimport check_table

@cython.locals(scan=BasicScan, p=Properties, flags=cython.uint, bit=cython.uint, at=Py_ssize_t,
               end=Py_ssize_t)
cpdef Properties read_basic(bytes payload)
cdef _take(Properties p, unsigned int bit, bytes text)
cdef _unload(Properties p)
cdef bytes _reply_text(Properties p)
cdef bytes _pack_reply_to(Properties p)
cpdef bytes write_basic(Properties p, object body_size)
