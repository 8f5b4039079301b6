# SPDX-License-Identifier: Apache-2.0
"""Configuration of the broker.

- `settings`: every setting; `settings_page`: their page in the docs
- `networks`: lists of addresses and networks
- `offers`: settings for clients of 0-8 and 0-9
- `identity`: server properties
- `logs`, `repeated_lines`: the log; lines that repeat
- `process`: open files, garbage collection, memory
- `json_values`: values of AMQP as JSON
"""
