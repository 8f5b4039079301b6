# SPDX-License-Identifier: Apache-2.0
"""Streams and queues as Arrow, for DuckDB, Polars, pandas and every other reader of Arrow.

Neither Spark nor Java is needed. See docs/guides/arrow.md.
"""

from headrace.extras import require

require("pyarrow", "numpy")

from headrace.arrow.records import Records  # noqa: E402
from headrace.arrow.sources import queue, stream  # noqa: E402

__all__ = ["Records", "queue", "stream"]
