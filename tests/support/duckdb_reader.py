# SPDX-License-Identifier: Apache-2.0
"""DuckDB as a reader of tables that Headrace wrote: tools/peers.py brings it.

Its extension for Iceberg is that of one version of DuckDB, so it has a folder of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from support.clients.client_programs import BROUGHT, bring

FOLDER = BROUGHT / "duckdb"
PROGRAM = """
import json, sys
from pathlib import Path
folder, query = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(folder))
import duckdb
database = duckdb.connect(config={"autoload_known_extensions": "false"})
database.execute("SET enable_progress_bar = false")  # A query of some seconds prints one.
for name in ("avro", "iceberg"):
    file = next(folder.glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension"))
    database.execute(f"LOAD '{file}'")
found = database.execute(query)
names = [column[0] for column in found.description]
print(json.dumps([dict(zip(names, row)) for row in found.fetchall()], default=str))
"""


def rows_by_duckdb(metadata: str, columns: str = "*") -> list[dict[str, Any]]:
    """Return the rows of the Iceberg table that a metadata file describes."""
    place = metadata.removeprefix("file://")
    query = f"SELECT {columns} FROM iceberg_scan('{place}')"
    bring(FOLDER)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(FOLDER), query], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
