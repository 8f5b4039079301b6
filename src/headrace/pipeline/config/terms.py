# SPDX-License-Identifier: Apache-2.0
"""The columns that a contract demands of a view."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Terms:
    """The columns of a view by a contract, with the types that each may have."""

    columns: Mapping[str, tuple[str, ...]]

    def misfits(self, types: Mapping[str, str]) -> list[str]:
        """Return the mistakes in the columns of a view, given their Spark types."""
        misfits = []
        kinds = {name.lower(): kind for name, kind in types.items()}
        for name, allowed in self.columns.items():
            kind = kinds.get(name.lower())
            if kind is None:
                misfits.append(f"there is no column {name!r}")
            elif re.split(r"[(<]", kind)[0].upper() not in allowed:
                misfits.append(f"column {name!r} is {kind}, and not {' or '.join(allowed)}")
        return misfits
