# SPDX-License-Identifier: Apache-2.0
"""Drawings as SVG: a topology, and a pipeline; both place their boxes on a grid."""
