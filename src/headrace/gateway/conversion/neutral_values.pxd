# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.wire.memory cimport get16, get32
from headrace.wire.table cimport check_utf8

cpdef bytes format_uuid(bytes raw)
@cython.locals(size=Py_ssize_t)
cpdef list decode_table_entries(bytes buffer, Py_ssize_t position, Py_ssize_t end, int depth=*)
@cython.locals(tag=cython.int, end=Py_ssize_t, fixed=tuple, raw=bytes)
cdef tuple _decode_tagged_value(bytes buffer, Py_ssize_t position, int depth)
cpdef bytes encode_table_entries(list entries, int depth=*)
@cython.locals(code=cython.int)
cpdef bytes encode_with_tag(tuple value, int depth=*)
@cython.locals(size=Py_ssize_t, count=Py_ssize_t)
cpdef list decode_map_entries(bytes buffer, Py_ssize_t position, Py_ssize_t end)
@cython.locals(position=Py_ssize_t, end=Py_ssize_t, count=Py_ssize_t)
cpdef tuple decode_list_items(bytes buffer)
@cython.locals(width=cython.int, size=Py_ssize_t)
cdef tuple _read_value(int code, bytes buffer, Py_ssize_t position, Py_ssize_t end)
cpdef bytes encode_map_entries(list entries)
