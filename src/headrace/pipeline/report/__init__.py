# SPDX-License-Identifier: Apache-2.0
"""Reports of the status of a pipeline: on terminals, as OpenMetrics, and as OpenLineage events."""
