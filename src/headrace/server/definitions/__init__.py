# SPDX-License-Identifier: Apache-2.0
"""Definitions in RabbitMQ's JSON format.

- `document`: a file, and its sections in the order of import
- `elements`, `typed_arguments`: an element, and arguments of types that JSON lacks
- `plan`, `account_plan`, `rules`: the plan of an import, complete before any change
- `outcomes`: the outcomes of elements
- `user_passwords`: passwords, hashed before the plan
- `held_elements`: elements for the other brokers of a cluster
- `apply`, `target`: applying a plan to a running broker or to a data directory
- `export`: export; `rabbitmq`: its adaptation to what RabbitMQ can read
"""
