# SPDX-License-Identifier: Apache-2.0
"""Sealed segments of streams in an object store, and blocks of them on their way back.

``object_store`` is the port to a store and its adapter, ``places`` and ``sidecar`` are what stays
here of a segment that moved, ``block_cache`` has the blocks that were read again, ``tier`` owns the
broker's part of the store.
"""
