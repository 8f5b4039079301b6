# SPDX-License-Identifier: Apache-2.0
"""Definitions, users and parameters.

- `users`, `parameters`: accounts, permissions, policies and limits in SQLite
- `changes`: a set of changes, all or none; `change_notes`: which command made them
- `database`: the file ``definitions.db`` and its versions
- `definitions`: exchanges, queues and bindings in the journal
- `earlier_definitions`: the same in tables of earlier versions
- `replica`: the catalog of a cluster; the port to its engine is `headrace.store.catalog_port`
"""
