# SPDX-License-Identifier: Apache-2.0
"""Connections and channels of 0-8, 0-9 and 0-9-1, without I/O.

- `connection`: the order of frames and methods; opening and closing of connections and channels
- `handshake`: the states of a connection
- `content_frames`, `channel`: the header and body frames of a content, and its limits
- `answers`: the order of answers
- `frames`: places and sizes in a frame
- `upcalls`, `events`: calls to the owner of a connection, or events instead
"""
