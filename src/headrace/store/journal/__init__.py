# SPDX-License-Identifier: Apache-2.0
"""The journal of a virtual host.

- `journal`: the store of a virtual host: publish, settle, facts, transactions
- `log`: its base: records in a buffer, written and synced in groups; rotation of segments
- `recovery`, `rows`: reading all segments at a start, torn writes; the recovered messages
- `definition_records`, `keyvalue`, `prepared_record`: records of definitions, facts, branches
- `settlements`, `delivery_counts`: settlements and redelivery counts of a turn
- `page_in`, `scratch`: loading of paged-out messages, persistent and transient
- `retirement`, `compaction`: removing old segments; copying messages out of old segments
"""
