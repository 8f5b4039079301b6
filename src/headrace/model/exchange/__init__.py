# SPDX-License-Identifier: Apache-2.0
"""Exchange types, and bindings.

- `exchange`, `binding`: the base class of all types, with binding filters; a binding
- `direct`, `fanout`, `topic`, `headers`: the standard types, with their indexes
- `hash`, `random`, `delayed`, `super_stream`: other types
- `deduplication`: the message ids of exchanges and queues that drop duplicates
- `registry`: types by name

`headrace.model.vhost.topology` declares exchanges and binds them.
"""
