# SPDX-License-Identifier: Apache-2.0
"""The frames of a local stream between a relay process and the broker that owns it.

A frame is the number of a connection (4 bytes), its kind (1), the size of its payload (3), and the
payload. Each side may send ``WINDOW`` bytes of a connection before the other gives credit for more,
so a connection that is not read stops no other one.

Connections are opened by messages of another socket, ``CONTROL``, since a socket comes with them:
a byte, then the number of the connection and of the TLS files that it is for (4 bytes each). Their
order is kept: a relay that reads a frame of an unknown connection reads that socket first.
"""

HEADER_SIZE = 8
SIZE_MASK = 0xFFFFFF

# Both ways.
DATA = 1  # Bytes of a client, or for it.
CREDIT = 2  # The number of further bytes that may be sent (4 bytes).
CLOSE = 3  # From the relay: the client is gone. To it: send the pending output, and close.
# To the relay.
END = 4  # End the stream to the client.
# From the relay.
SECURED = 5  # TLS is up: facts as JSON.
FAILED = 6  # The TLS handshake failed: the reason.
READY = 7  # The relay accepts connections; for connection 0.

WINDOW = 262144  # Bytes of a connection under way in one direction.
CREDIT_AT = WINDOW // 2  # Bytes for which credit is given at once.
PIECE_MAX = 65536  # Bytes of a DATA frame.
FACTS_MAX = 131072  # Bytes of a SECURED frame.
BACKLOG_MAX = 1 << 20  # Bytes that wait for one side to read; above, the other stops reading.
READ_SIZE = 1 << 18  # Bytes that are read at once.
LINGER_S = 3.0  # The longest time for a closed client to read the last output.

OPEN = b"O"  # The client's socket comes with it.
OPEN_SECURE = b"S"  # The same, for a TLS handshake.
TLS_FILES = b"T"  # Files of TLS for the connections opened afterwards: JSON.
CONTROL_SIZE_MAX = 65536
