# SPDX-License-Identifier: Apache-2.0
"""The virtual host: its exchanges and queues, and how a message passes through them.

- `virtual_host`: publish, route, deliver
- `topology`, `queue_registry`, `super_stream`: exchanges and bindings; queues; partitions
- `chunked_list`: the list of queues, which may change while it is iterated
- `queue_type`: the class of a queue, from its arguments
- `apply_policies`: applies policies and arguments to new and existing queues and exchanges
- `dead_lettering`: publishes expired, rejected and surplus messages to their exchange
- `dead_letter_cycles`: finds dead letters that return to their queue, or multiply
- `at_least_once`: dead letters that stay until every target has them
- `orphans`: messages of deleted queues, to alternate exchanges
- `publishing_ids`: publishers with numbers, whose duplicates are dropped
- `definitions`: the port to the stored definitions of exchanges, queues and bindings
"""
