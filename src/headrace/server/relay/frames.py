# SPDX-License-Identifier: Apache-2.0
"""The frames of a local stream between a relay process and the broker that owns it.

A frame is the number of a connection (4 bytes), its kind (1), the size of its payload (3), and the
payload. Each side may send ``WINDOW`` bytes of a connection before the other gives credit for more,
so a connection that is not read stops no other one.

Connections are opened by messages of another socket, ``CONTROL``, since a socket comes with them:
a byte, then the number of the connection and of the TLS files that it is for (4 bytes each). Their
order is kept: a relay that reads a frame of a connection that it does not know looks there first.
"""

HEADER_SIZE = 8
SIZE_MASK = 0xFFFFFF

# Both ways.
DATA = 1  # Of a client, or for it.
CREDIT = 2  # So many bytes more may come (4 bytes).
CLOSE = 3  # From the relay: the client is gone. To it: send what waits, and close.
# To the relay.
END = 4  # No more follows: end the stream to the client.
# From the relay.
SECURED = 5  # TLS is up: facts as JSON.
FAILED = 6  # There will be no TLS: a reason.
READY = 7  # Connections can be opened; of connection 0.

WINDOW = 262144  # Bytes of a connection under way in one direction.
CREDIT_AT = WINDOW // 2  # Bytes for which credit is given at once.
PIECE_MAX = 65536  # Bytes of a DATA frame.
FACTS_MAX = 131072  # Bytes of a SECURED frame.
BACKLOG_MAX = 1 << 20  # Bytes that wait for one side to read: then the other takes in no more.
READ_SIZE = 1 << 18  # Bytes that are read at once.
LINGER_S = 3.0  # How long a closed client may take to read our last words.

OPEN = b"O"  # With the client's socket,
OPEN_SECURE = b"S"  # also to begin TLS.
TLS_FILES = b"T"  # Files of TLS for what is opened from now on: JSON.
CONTROL_SIZE_MAX = 65536
