# SPDX-License-Identifier: Apache-2.0
"""The logs that Spark keeps of a streaming query: a directory with a numbered file per batch."""

from __future__ import annotations

from pathlib import Path


def forget_last(log: Path) -> int:
    """Delete the newest entry, as if Spark had crashed before it wrote it; return its number."""
    last = max(int(path.name) for path in log.iterdir() if path.name.isdigit())
    (log / str(last)).unlink()
    (log / f".{last}.crc").unlink(missing_ok=True)
    return last
