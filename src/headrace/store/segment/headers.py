# SPDX-License-Identifier: Apache-2.0
"""The headers of all segments of a log, read before anything else."""

import os

from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.segment.segment import HEADER, VERSION, Header, file_name, read_header

Headers = dict[int, tuple[int, Header | None]]  # By number: size of the file, and header.


def read_headers(disk: Disk, directory: str, numbers: list[int]) -> tuple[Headers, int]:
    """Return the header of each segment, and the number of the oldest needed one.

    A header is None if it is damaged or from an earlier use of the file.

    Raises:
        StoreError: a segment has an unknown version.
    """
    found: Headers = {}
    oldest = 0
    for number in numbers:
        path = os.path.join(directory, file_name(number))
        handle = disk.open(path)
        try:
            head = read_header(disk.read(handle, HEADER, 0))
            size = disk.size(handle)
        finally:
            disk.close(handle)
        if head is not None and head.number != number:
            head = None  # A recycled file without a new header.
        if head is not None:
            if head.version > VERSION:
                raise StoreError(
                    f"{path} was written by a newer version of Headrace "
                    f"(format {head.version}; this one reads up to {VERSION})"
                )
            oldest = max(oldest, head.oldest)
        found[number] = size, head
    return found, oldest
