# SPDX-License-Identifier: Apache-2.0
"""Leases: ranges of a queue's messages, read by a group.

- `registry`: the operations claim, take, settle and release
- `lease`, `log`: the hidden stream of one lease, and its log
- `ownership`: the owner of a lease and its timeout
- `rejects`: messages that readers reject before the owner settles
"""
