# SPDX-License-Identifier: Apache-2.0
"""Errors of queries."""


class QueryError(ValueError):
    """A query that cannot be run; the text says why."""
