# SPDX-License-Identifier: Apache-2.0
"""The console's pages: HTML made here, readable without scripts.

Lists, objects and actions are declared (:mod:`.listings`, :mod:`.details`, :mod:`.actions`); each
reads and changes by the handler that the API has for the same thing.
"""
