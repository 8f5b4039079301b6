# SPDX-License-Identifier: Apache-2.0
"""Observers, stamps and traces of messages on their way through exchanges.

- `interception`: publishing with any of them
- `exchange_observer`: sequence numbers, duplicates, messages kept for later bindings
- `stamps`: headers that the broker adds
- `tracer`: copies for ``amq.rabbitmq.trace``
"""
