# SPDX-License-Identifier: Apache-2.0
"""The console's pages: HTML from templates, usable without scripts.

:mod:`.objects` and :mod:`.messages` declare lists, pages of one object, and actions
(:mod:`.listings`, :mod:`.details`, :mod:`.actions`) in one :class:`.resource_pages.ResourcePages` a
module, which :mod:`.routes` joins. They call the functions that the API's handlers call.
:mod:`.charts` has the charts of pages, :mod:`.exports` CSV and JSON files.
"""
