# SPDX-License-Identifier: Apache-2.0
"""SQL over streams, queues and archives, by DuckDB, without changing or consuming them.

See docs/guides/sql.md.
"""

from headrace.extras import require

require("duckdb", "pyarrow", "numpy")

from headrace.sql.engine import Limits, Running, describe_error, run  # noqa: E402
from headrace.sql.sources import SourceCatalog  # noqa: E402
from headrace.sql.statement import QueryError  # noqa: E402

__all__ = ["Limits", "QueryError", "Running", "SourceCatalog", "describe_error", "run"]
