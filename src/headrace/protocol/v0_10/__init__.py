# SPDX-License-Identifier: Apache-2.0
"""Connections and sessions of 0-10, without I/O.

- `connection.connection`: the connection class; `opening` its states and limits
- `connection.frames`: frames, controls and commands
- `connection.attachments`: session.attach and session.detach
- `session.registry`: the sessions of a broker, and their timeouts
- `session.received`: command-point, gap, completed, confirmed, known-completed; execution.sync
- `session.sent`: commands that a session sends, and keeps for a replay
- `session.replay`: session.expected, after an attachment
- `session.session`: attaching, detaching, and the end of a session
- `session_connection`: a connection, as its sessions use it
- `assembly`: a command from its frames
"""
