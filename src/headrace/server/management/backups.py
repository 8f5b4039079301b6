# SPDX-License-Identifier: Apache-2.0
"""The operation that makes a backup (:mod:`headrace.server.data.backup`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.server.data.backup import back_up

if TYPE_CHECKING:
    from headrace.server.management.call import Answered, Call, Operation


async def make_backup(call: Call) -> Answered:
    """Make a backup in ``directory``, linking files that the backup ``base`` has already."""
    directory, base = Path(call.text("directory")), call.text("base", "")
    if not directory.is_absolute() or (base and not Path(base).is_absolute()):
        call.refuse("bad-request", "directories are named from the root")
    broker = call.broker
    if broker.backing_up:
        call.refuse("conflict", "another backup is being made")
    call.log(f"makes a backup in {directory}")
    broker.backing_up = True
    try:
        return await back_up(
            broker.storage,
            directory,
            Path(base) if base else None,
            verify=call.flag("verify", True),
            wait_for_disk=broker.drain.wait_for_disk,
            report=call.tell,
        )
    finally:
        broker.backing_up = False


OPERATIONS: dict[str, Operation] = {"back up": make_backup}
