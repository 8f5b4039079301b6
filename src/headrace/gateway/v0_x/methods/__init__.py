# SPDX-License-Identifier: Apache-2.0
"""Methods of 0-8 to 0-9-1, a module for each class, and ``consumers``, which several classes use.

A handler reads the method and answers it. Rules that it relies on are kept

- in `headrace.gateway.v0_x.channel.consumer`: prefetch, no-local
- in `headrace.gateway.v0_x.channel.channel`: delivery tags, acknowledgements
- in `headrace.gateway.v0_x.connection.slow_path`: mandatory, immediate, commits
- in `headrace.gateway.security.authorized_host`: permissions, missing queues and exchanges
- in `headrace.model.vhost`: declarations, deletions, bindings
- in `headrace.protocol.v0_x.connection`: opening and closing of connections and channels
"""
