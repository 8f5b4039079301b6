# SPDX-License-Identifier: Apache-2.0
"""Samples of the broker's objects, with their counters over time.

:mod:`.broker_mirror` samples the broker and gives requests a :mod:`.table` for each kind of
objects; each user sees a part of it. :mod:`.history` returns series for charts.
"""
