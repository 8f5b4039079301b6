# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.conversion.neutral cimport Properties
from headrace.wire.memory cimport get16, get32, get64
from headrace.wire.table cimport check_table
from headrace.wire.property_bits cimport (
    DELIVERY_FLAGS, MESSAGE_FLAGS, REPLY_TO_FLAGS, REPLY_TO_HAS_EXCHANGE, REPLY_TO_HAS_ROUTING_KEY,
    DELIVERY_HAS_DELIVERY_MODE, DELIVERY_HAS_EXCHANGE, DELIVERY_HAS_EXPIRATION,
    DELIVERY_HAS_PRIORITY, DELIVERY_HAS_RESUME_ID, DELIVERY_HAS_RESUME_TTL,
    DELIVERY_HAS_ROUTING_KEY, DELIVERY_HAS_TIMESTAMP, DELIVERY_HAS_TTL,
    MESSAGE_HAS_APPLICATION_HEADERS, MESSAGE_HAS_APP_ID, MESSAGE_HAS_CONTENT_ENCODING,
    MESSAGE_HAS_CONTENT_LENGTH, MESSAGE_HAS_CONTENT_TYPE, MESSAGE_HAS_CORRELATION_ID,
    MESSAGE_HAS_MESSAGE_ID, MESSAGE_HAS_REPLY_TO, MESSAGE_HAS_USER_ID,
)

@cython.locals(properties=Properties)
cpdef Properties read_transfer(bytes payload)
@cython.locals(stop=Py_ssize_t)
cpdef list split_structs(bytes payload, Py_ssize_t position, Py_ssize_t end)
@cython.locals(flags=cython.uint)
cdef int _read_flags(bytes buffer, Py_ssize_t position, Py_ssize_t end, unsigned int known_flags) except -1
@cython.locals(flags=cython.uint, fixed=Py_ssize_t)
cdef _read_delivery(Properties properties, bytes buffer, Py_ssize_t position, Py_ssize_t end)
cdef Py_ssize_t _skip_str8(bytes buffer, Py_ssize_t position, Py_ssize_t end) except -1
cdef bytes _read_str8(bytes buffer, Py_ssize_t position, Py_ssize_t end)
cdef bytes _read_vbin16(bytes buffer, Py_ssize_t position, Py_ssize_t end)
@cython.locals(flags=cython.uint, size=Py_ssize_t, stop=Py_ssize_t)
cdef _read_message(Properties properties, bytes buffer, Py_ssize_t position, Py_ssize_t end)
@cython.locals(start=Py_ssize_t, stop=Py_ssize_t, position=Py_ssize_t, flags=cython.uint)
cpdef bytes with_application_header(bytes payload, bytes name, tuple value)
cdef bytes _encode_application_headers(list entries, bytes name, tuple value)
cdef Py_ssize_t _find_application_headers(
    bytes buffer, Py_ssize_t position, Py_ssize_t end, unsigned int flags
) except -1
cdef Py_ssize_t _skip_vbin16(bytes buffer, Py_ssize_t position, Py_ssize_t end) except -1
@cython.locals(flags=cython.uint)
cdef _read_reply_to(Properties properties, bytes buffer, Py_ssize_t position, Py_ssize_t end)
cdef _restore_carried(Properties properties, list headers)
cdef _restore_properties(Properties properties, dict carried)
cpdef bytes write_transfer(
    Properties properties, bytes exchange, bytes routing_key, long long content_length=*
)
cpdef bytes encode_struct(bytes code, int flags, bytes fields)
