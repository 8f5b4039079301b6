# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-8, 0-9 and 0-9-1: connections, channels and the methods of every class.

- `methods`: the classes connection, channel, exchange, queue, basic, confirm, tx and dtx
- `content_classes`: the classes file, stream, tunnel and test
- `early`: of 0-8 and 0-9 alone, the classes access and message, and channel.resume
- `connection`: publishes, the answers to a login, the end of a connection
- `channel`: deliveries, acknowledgements, prefetch, contents
- `early_rules`, `quirks`: rules that differ by version, and by client

The order of methods and frames is kept in `headrace.protocol.v0_x`.
"""
