# SPDX-License-Identifier: Apache-2.0
"""Sealed segments of streams in an object store, and blocks of them on their way back.

``object_store`` is the port to a store and its adapter. ``record_groups`` and ``sidecar`` are the
record index of an offloaded segment, which stays here. ``block_cache`` has the blocks that are read
again. ``tier`` owns the broker's part of the store.
"""
