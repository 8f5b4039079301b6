# SPDX-License-Identifier: Apache-2.0
"""Sealed segments of streams in an object store.

- `object_store`: the port to an object store, and its adapter
- `record_groups`, `sidecar`: the record index of an offloaded segment, which stays on disk
- `block_cache`: blocks that were fetched from the store
- `tier`: the broker's part of the store: uploads, fetches and deletions
"""
