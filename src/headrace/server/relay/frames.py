# SPDX-License-Identifier: Apache-2.0
"""The frames of a local stream between a relay process and the broker that owns it.

A frame is the number of a connection (4 bytes), its kind (1), the size of its payload (3), and the
payload. Each side may send ``WINDOW`` bytes of a connection before the other gives credit for more,
so a connection that is not read does not stop the others.

A second local socket, the control socket, carries the messages that open connections, as only it
can carry the client's socket. A message is a byte, the number of the connection, and the number of
the TLS files for it (4 bytes each). A relay that reads a frame of an unknown connection first reads
the control socket.
"""

HEADER_SIZE = 8
SIZE_MASK = 0xFFFFFF

# Kinds of frames in both directions.
DATA = 1  # Bytes from or to a client.
CREDIT = 2  # The number of further bytes that may be sent (4 bytes).
CLOSE = 3  # From the relay: the client is gone. From the broker: send pending output, then close.
# Kinds of frames from the broker.
END = 4  # End the stream to the client.
# Kinds of frames from the relay.
SECURED = 5  # The TLS handshake succeeded; the payload has its facts as JSON.
FAILED = 6  # The TLS handshake failed; the payload is the reason.
READY = 7  # The relay accepts connections; its number is 0.

WINDOW = 262144  # Bytes of a connection in one direction that may be sent without further credit.
CREDIT_AT = WINDOW // 2  # Received bytes after which credit is given.
PIECE_MAX = 65536  # Bytes of a DATA frame.
FACTS_MAX = 131072  # Bytes of a SECURED frame.
BACKLOG_MAX = 1 << 20  # Unsent bytes of one side above which it stops reading its input.
READ_SIZE = 1 << 18  # Bytes of one read.
LINGER_S = 3.0  # The longest time for a closed client to read the last output.

# Kinds of messages on the control socket.
OPEN = b"O"  # A plain connection; the client's socket is attached.
OPEN_SECURE = b"S"  # A connection with TLS; the client's socket is attached.
TLS_FILES = b"T"  # The TLS files for the connections opened afterwards, as JSON.
CONTROL_SIZE_MAX = 65536  # Bytes of a message.
