# SPDX-License-Identifier: Apache-2.0
cdef enum:
    C_SIZE_AT = 3
    C_PAYLOAD_AT = 7
    C_FLAGS_AT = 19
    C_PROPERTIES_AT = 21
    C_NO_PROPERTIES = 14

cpdef bytes framed(unsigned int kind, unsigned int number, bytes payload)
