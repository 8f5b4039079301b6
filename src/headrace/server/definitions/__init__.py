# SPDX-License-Identifier: Apache-2.0
"""Definitions in RabbitMQ's JSON format.

- `document`: a file, its sections in the order of import
- `elements`, `typed_arguments`: an element, and arguments that JSON lacks
- `plan`, `account_plan`, `rules`: the plan of an import, complete before any change
- `outcomes`: the outcome of each element
- `user_passwords`: passwords, hashed before the plan
- `apply`, `target`: applying a plan to a running broker or to a data directory
- `export`, `rabbitmq`: export, and what RabbitMQ cannot read
"""
