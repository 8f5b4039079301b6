# SPDX-License-Identifier: Apache-2.0
"""The columns that a contract requires of a view."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class RequiredColumns:
    """The required columns of a view, each with its allowed Spark types."""

    columns: Mapping[str, tuple[str, ...]]

    def find_misfits(self, types: Mapping[str, str]) -> list[str]:
        """Return a text for each missing column and each column of a wrong type.

        `types` has the Spark type of each column of the view.
        """
        misfits = []
        types_by_name = {name.lower(): spark_type for name, spark_type in types.items()}
        for name, allowed in self.columns.items():
            spark_type = types_by_name.get(name.lower())
            if spark_type is None:
                misfits.append(f"there is no column {name!r}")
            elif re.split(r"[(<]", spark_type)[0].upper() not in allowed:
                misfits.append(f"column {name!r} is {spark_type}, and not {' or '.join(allowed)}")
        return misfits
