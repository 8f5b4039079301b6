# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-10: connections, sessions, subscriptions and the commands of every class.

- `connection`: the connection class, and the sessions of a connection
- `session`: transfers both ways, credit, settlement, completion
- `commands`: the classes message, exchange, queue, tx and dtx
- `content_classes`: the classes file and stream
- `errors`: the code, text and field of an execution.exception
- `qpid_clients`: rules that differ by client

The classes session and execution are kept in `headrace.protocol.v0_10`, and so are frames.
"""
