# SPDX-License-Identifier: Apache-2.0
"""Exchange types, and bindings.

- `exchange`, `binding`: the base of all types, and the filters of bindings; one binding
- `direct`, `fanout`, `topic`, `headers`: the standard types, with their indexes
- `hash`, `random`, `delayed`, `super_stream`: other types
- `deduplication`: the remembered ids of exchanges and queues that drop duplicates
- `registry`: types by name

`headrace.model.vhost.topology` declares exchanges and binds them.
"""
