# SPDX-License-Identifier: Apache-2.0
"""Arguments of declarations: their names, values and meaning.

- `values`: the arguments of queues: names, checks, equivalence of two declarations
- `exchange`: checks of exchange arguments
- `consumer`, `no_local`: the filters, priority and replay of consumers and bindings; no-local
- `lifetime_policies`, `expiration`, `backoff`: lifetime policies; TTLs of messages; retry delays
- `aliases`, `canonical`: names of other brokers; forms of values that compare
- `memory_estimate`: the memory of definitions
"""
