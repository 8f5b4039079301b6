# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for what must come.

It is an end for what never comes and no measure: a machine that does much else may take long.
"""

from __future__ import annotations

PATIENCE_S = 200.0
