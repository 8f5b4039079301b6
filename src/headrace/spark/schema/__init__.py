# SPDX-License-Identifier: Apache-2.0
"""Spark's types for the columns of a read, and the observed metrics of a query."""
