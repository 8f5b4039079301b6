# SPDX-License-Identifier: Apache-2.0
"""Arguments of declarations: their names, values and meaning.

- `values`: the arguments of queues: names, checks, equivalence of two declarations
- `exchange`: checks of exchange arguments
- `consumer`, `no_local`: filters, priority and replay of consumers and bindings; no-local
- `lifetime_policies`, `expiration`, `backoff`: lifetimes of queues; message TTLs; retry delays
- `aliases`, `canonical`: argument names of other brokers; values in a comparable form
- `memory_estimate`: the memory of definitions
"""
