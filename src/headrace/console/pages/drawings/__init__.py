# SPDX-License-Identifier: Apache-2.0
"""The drawings of topologies and pipelines as SVG; both place their boxes on a grid."""
