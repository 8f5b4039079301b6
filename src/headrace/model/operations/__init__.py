# SPDX-License-Identifier: Apache-2.0
"""Operations on messages: peek, browse, move, jobs.

- `jobs`, `move`, `prepared_copies`: jobs that move, copy or delete messages, in one transaction
- `peek`: reading messages for operators
- `queue_view`: a queue that consumers read like a stream
"""
