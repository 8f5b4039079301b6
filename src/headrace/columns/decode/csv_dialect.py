# SPDX-License-Identifier: Apache-2.0
"""The dialect of CSV in the options. The module does not import Arrow, so it loads quickly."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """The special characters of CSV records, and the text that stands for null."""

    separator: str = ","
    quote: str = '"'
    escape: str | None = None
    null: str = ""

    def parse(self, body: bytes) -> list[str]:
        """Return the texts of one record.

        Raises:
            ValueError: the body is not UTF-8, or not exactly one record.
            csv.Error: The record is malformed.
        """
        text = body.decode()
        if not text.strip("\r\n"):
            raise ValueError("the body is empty")
        records = list(
            csv.reader(
                io.StringIO(text, newline=""),
                delimiter=self.separator,
                quotechar=self.quote,
                escapechar=self.escape,
                strict=True,
            )
        )
        if len(records) != 1:
            raise ValueError(f"it has {len(records)} records")
        return records[0]
