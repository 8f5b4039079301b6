# SPDX-License-Identifier: Apache-2.0
"""Streams: numbered records that stay, and the positions of their readers.

- `stream`: publishing, the start of readers (``x-stream-offset``: an offset or time), delivery
- `log`: records and their retention
- `reader_options`: the end, the filter values, the selector and no-local of a reader
- `consumer_groups`: groups, their committed positions, owners and pins
- `offset_tracking`: positions kept by consumer tag
- `lost_records`: records that retention removed unread
"""
