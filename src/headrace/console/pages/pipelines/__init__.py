# SPDX-License-Identifier: Apache-2.0
"""Pages of Spark's queries and of pipelines."""
