# SPDX-License-Identifier: Apache-2.0
"""The classes file and stream in all versions: files and packets.

- `file`: the class file, and files that are sent to a client
- `file_uploads`: files that a client sends: open, stage, publish
- `stream`: the class stream
- `lanes`: the queues of files and packets
- `port`, `file_port`: a channel or session, as these classes use it
- `bodies`: the port to the bodies of files
"""
