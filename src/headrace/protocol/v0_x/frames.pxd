# SPDX-License-Identifier: Apache-2.0
cdef enum:
    C_METHOD = 1
    C_HEADER = 2
    C_BODY = 3
    C_HEARTBEAT = 8
    C_END = 0xCE
    C_CHANNEL_AT = 1
    C_SIZE_AT = 3
    C_PAYLOAD_AT = 7
    C_FLAGS_AT = 19
    C_PROPERTIES_AT = 21
    C_NO_PROPERTIES = 14
    C_OVERHEAD = 8
    C_ARGUMENTS_AT = 11
    C_PUBLISH_ADDRESS_AT = 13
    C_PUBLISH_END_LEN = 2
    C_BODY_SIZE_AT = 11
    C_TAG_LEN = 8
    C_TAG_AND_FLAG_LEN = 9
    C_ACK_LEN = 13
    C_ACK_FLAG_AT = 19

cpdef bytes make_frame(unsigned int frame_type, unsigned int number, bytes payload)
