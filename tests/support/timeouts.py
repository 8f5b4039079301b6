# SPDX-License-Identifier: Apache-2.0
"""The time limit of waits in tests.

It ends a wait for an event that never happens. Tests do not measure by it, as a busy machine may
take long.
"""

from __future__ import annotations

PATIENCE_S = 200.0
