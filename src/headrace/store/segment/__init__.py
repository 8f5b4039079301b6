# SPDX-License-Identifier: Apache-2.0
"""Segments: files of records.

- `record`: the format of records, and their checksums
- `segment`: a segment, and its index of unsettled messages; `span`: the messages of one turn
- `group`, `writer`: records that are synced at once; the thread that writes and syncs
- `segment_files`: making, growing, opening and recycling files
- `reserve`: disk space for records that free space, on a full disk
- `headers`, `reached`: the headers at a start; the number of the last segment
- `quarantine`: damaged places, kept aside
- `read_ahead`: how much is read at once when messages are loaded
- `stream_port`: the port of a journal to logs of streams
"""
