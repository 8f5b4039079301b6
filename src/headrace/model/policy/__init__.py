# SPDX-License-Identifier: Apache-2.0
"""Operators' policies, limits and rules for virtual hosts and users.

- `policy`, `name_patterns`, `parameters`: policies; their patterns; how all of these are stored
- `effective_arguments`: a queue's arguments, completed and limited by policies
- `rules`, `rate_limit`: limits of virtual hosts and users; publish and consume rates
- `unknown_arguments`: unknown arguments refused, logged or ignored
- `accounts`: users, their tags and permissions

`headrace.model.vhost.apply_policies` applies them to queues and exchanges.
"""
