# SPDX-License-Identifier: Apache-2.0
"""Contents that are no messages, in all versions: files, and packets of the stream class.

- `file`: the class file, and files on their way to a client
- `file_uploads`: files that a client sends: open, stage, publish
- `stream`: the class stream
- `lanes`: the queues of files and packets
- `port`, `file_port`: a channel or session, as these classes use it
- `bodies`: the port to the bodies of files
"""
