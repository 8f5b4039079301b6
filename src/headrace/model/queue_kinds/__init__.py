# SPDX-License-Identifier: Apache-2.0
"""Kinds of queue, and the arguments that make them.

- `grouped`: message groups; `group_list` is their ready list
- `priority`: levels of priority, which every queue has
- `sorted`, `fair_share`, `ordered`: other orders, and the list that they share
- `last_value`, `deduplicating`, `delayed`: one message for each key, no duplicates, x-delay
- `inspecting`, `header_reader`: the base of queues that inspect arrivals; reads their headers
- `multi_queue`: one consumer of several queues
- `content_lanes`: content of the classes file and stream
- `apply_arguments`: sets a queue's attributes from its arguments
"""
