# SPDX-License-Identifier: Apache-2.0
"""The file ``applied``: the last entry of the ledger that is durable in the files of a node.

The file has a line of JSON and a checksum. The JSON has the number and the chain of the entry, and
for each file its size and the number of the first entry that wrote to it. The ledger retains all
entries from the lowest of these numbers on, so that a node without files can be filled from it.
"""

import json
import os
import zlib
from typing import NamedTuple

from headrace.store.disk import Disk
from headrace.store.replacement import write_whole

NAME = "applied"


class ReplicatedFile(NamedTuple):
    """The state of a file after the applied entries of the ledger."""

    first: int  # The first entry that wrote to it.
    size: int  # Bytes. The local file may be longer: it has reserved room or was a spare.


class Applied(NamedTuple):
    """The last entry that is durable in the files of a node, and the state of these files."""

    number: int  # The number of the last entry.
    chain: bytes  # The chain of the last entry.
    files: dict[str, ReplicatedFile]  # Files by path.


def read_applied(disk: Disk, home: str) -> Applied | None:
    """Return the contents of the file; None if it is missing or damaged."""
    if not disk.is_directory(home) or NAME not in disk.names(home):
        return None
    handle = disk.open(os.path.join(home, NAME))
    try:
        data = disk.read(handle, disk.size(handle), 0)
    finally:
        disk.close(handle)
    text, _, check = data.rpartition(b"\n")
    if check != b"%08x" % zlib.crc32(text):
        return None
    fields = json.loads(text)
    files = {path: ReplicatedFile(*parts) for path, parts in fields["files"].items()}
    return Applied(fields["number"], bytes.fromhex(fields["chain"]), files)


def write_applied(disk: Disk, home: str, applied: Applied) -> None:
    """Write the file durably, or not at all.

    Raises:
        OSError: the file could not be written.
    """
    fields = {"number": applied.number, "chain": applied.chain.hex(), "files": applied.files}
    text = json.dumps(fields, separators=(",", ":")).encode()
    disk.make_directory(home)
    write_whole(disk, os.path.join(home, NAME), text + b"\n%08x" % zlib.crc32(text))
