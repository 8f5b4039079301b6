# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, on a port of their own.

:mod:`.aggregated` serves ``/metrics``, :mod:`.per_object` ``/metrics/per-object`` and
``/metrics/detailed`` with the families of :mod:`.families`. Most metrics are rows of
:mod:`headrace.measures`.
"""
