# SPDX-License-Identifier: Apache-2.0
"""Kinds of queue, and the arguments that make them.

- `grouped`: message groups; `group_list` is their ready list
- `priority`: levels of priority, which every queue has
- `sorted`, `fair_share`, `ordered`: other orders, and the list that they share
- `last_value`, `deduplicating`, `delayed`: kept by key, without duplicates, not before a time
- `inspecting`, `header_reader`: base of the kinds that read headers of arrivals; the reader
- `multi_queue`: one consumer of several queues
- `content_lanes`: content of the classes file and stream
- `apply_arguments`: arguments and policies to a queue's limits
"""
