# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.gateway.conversion.neutral cimport Properties
from headrace.wire.properties cimport BasicScan, scan_basic
from headrace.wire.table cimport check_table
from headrace.wire.property_bits cimport (
    HAS_APP_ID, HAS_CLUSTER_ID, HAS_CONTENT_ENCODING, HAS_CONTENT_TYPE, HAS_CORRELATION_ID,
    HAS_DELIVERY_MODE, HAS_EXPIRATION, HAS_HEADERS, HAS_MESSAGE_ID, HAS_PRIORITY, HAS_REPLY_TO,
    HAS_TIMESTAMP, HAS_TYPE, HAS_USER_ID,
)

@cython.locals(scan=BasicScan, properties=Properties, flags=cython.uint, bit=cython.uint, position=Py_ssize_t,
               end=Py_ssize_t)
cpdef Properties read_basic(bytes payload)
cdef _set_text_property(Properties properties, unsigned int bit, bytes text)
cdef _restore_carried(Properties properties)
cdef bytes _find_reply_text(Properties properties)
cdef bytes _pack_reply_to(Properties properties)
cpdef bytes write_basic(Properties properties, object body_size)
