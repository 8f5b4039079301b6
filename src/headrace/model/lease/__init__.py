# SPDX-License-Identifier: Apache-2.0
"""Leases: ranges of a queue's messages, read by a group.

- `registry`: claim, take, settle, release
- `lease`, `log`: the hidden stream of one lease, and its log
- `ownership`: the owner of a lease and its timeout
- `rejects`: numbers that readers reject before the owner settles
"""
