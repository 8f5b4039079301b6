# SPDX-License-Identifier: Apache-2.0
"""The metrics of ``/metrics``, for Prometheus."""
