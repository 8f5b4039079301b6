# SPDX-License-Identifier: Apache-2.0
"""Samples of the broker's objects, with their counters over time.

:mod:`.broker_mirror` samples the broker, and has a :mod:`.table` for each kind of objects, with all
objects; handlers select those that the user sees. :mod:`.history` returns series for charts.
"""
