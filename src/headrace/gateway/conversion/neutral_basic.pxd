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

@cython.locals(scan=BasicScan, p=Properties, flags=cython.uint, bit=cython.uint, position=Py_ssize_t,
               end=Py_ssize_t)
cpdef Properties read_basic(bytes payload)
cdef _take(Properties p, unsigned int bit, bytes text)
cdef _unload(Properties p)
cdef bytes _reply_text(Properties p)
cdef bytes _pack_reply_to(Properties p)
cpdef bytes write_basic(Properties p, object body_size)
