# SPDX-License-Identifier: Apache-2.0
"""Operations on messages: peek, browse, move, jobs.

- `jobs`, `move`, `prepared_copies`: moving, copying and deleting messages, each one transaction
- `peek`: reading for operators
- `queue_view`: browsing by consumers, a queue read like a stream
"""
