# SPDX-License-Identifier: Apache-2.0
"""The flag bits of the properties in a content header, by name.

In 0-8, 0-9 and 0-9-1 the first property has the highest bit of 16. The packing flags of a struct of
0-10 are two bytes, read here as a number with the low byte first: the first field has the lowest
bit. In compiled modules these names are C constants.
"""

# The basic class of 0-8, 0-9 and 0-9-1.
HAS_CONTENT_TYPE = 0x8000
HAS_CONTENT_ENCODING = 0x4000
HAS_HEADERS = 0x2000
HAS_DELIVERY_MODE = 0x1000
HAS_PRIORITY = 0x0800
HAS_CORRELATION_ID = 0x0400
HAS_REPLY_TO = 0x0200
HAS_EXPIRATION = 0x0100
HAS_MESSAGE_ID = 0x0080
HAS_TIMESTAMP = 0x0040
HAS_TYPE = 0x0020
HAS_USER_ID = 0x0010
HAS_APP_ID = 0x0008
HAS_CLUSTER_ID = 0x0004
# The start of a content header of class basic: class id 60, weight 0.
BASIC_HEADER = 0x003C0000

# The struct delivery-properties of 0-10.
DELIVERY_HAS_DISCARD_UNROUTABLE = 0x001
DELIVERY_HAS_IMMEDIATE = 0x002
DELIVERY_HAS_REDELIVERED = 0x004
DELIVERY_HAS_PRIORITY = 0x008
DELIVERY_HAS_DELIVERY_MODE = 0x010
DELIVERY_HAS_TTL = 0x020
DELIVERY_HAS_TIMESTAMP = 0x040
DELIVERY_HAS_EXPIRATION = 0x080
DELIVERY_HAS_EXCHANGE = 0x100
DELIVERY_HAS_ROUTING_KEY = 0x200
DELIVERY_HAS_RESUME_ID = 0x400
DELIVERY_HAS_RESUME_TTL = 0x800
DELIVERY_FLAGS = 0xFFF  # The flags of all delivery properties.

# The struct message-properties of 0-10.
MESSAGE_HAS_CONTENT_LENGTH = 0x001
MESSAGE_HAS_MESSAGE_ID = 0x002
MESSAGE_HAS_CORRELATION_ID = 0x004
MESSAGE_HAS_REPLY_TO = 0x008
MESSAGE_HAS_CONTENT_TYPE = 0x010
MESSAGE_HAS_CONTENT_ENCODING = 0x020
MESSAGE_HAS_USER_ID = 0x040
MESSAGE_HAS_APP_ID = 0x080
MESSAGE_HAS_APPLICATION_HEADERS = 0x100
MESSAGE_FLAGS = 0x1FF  # The flags of all message properties.

# The struct reply-to of 0-10.
REPLY_TO_HAS_EXCHANGE = 0x1
REPLY_TO_HAS_ROUTING_KEY = 0x2
REPLY_TO_FLAGS = 0x3  # The flags of both fields.
