# SPDX-License-Identifier: Apache-2.0
"""Reading the headers of all segments of a log, the first step of a recovery."""

import os
from collections import Counter

from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.segment.segment import HEADER, VERSION, Header, file_name, read_header

Headers = dict[int, tuple[int, Header | None]]  # The file's size and header, by number.


def read_headers(
    disk: Disk, directory: str, numbers: list[int], secret: int | None = None
) -> tuple[Headers, int]:
    """Return the header of each segment, and the number of the oldest needed segment.

    A header is None if it is damaged or from an earlier use of the file. ``secret`` is the secret
    in the journal's file of that name, if it exists.

    Raises:
        StoreError: a segment has an unknown version, or is of another log.
    """
    headers: Headers = {}
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
        headers[number] = size, head
    check_secrets(directory, headers, secret)
    return headers, oldest


def check_secrets(directory: str, headers: Headers, secret: int | None) -> None:
    """Check that all segments are of one log: a foreign header could remove needed segments.

    Raises:
        StoreError: a segment is of another log.
    """
    heads = {number: head for number, (_, head) in headers.items() if head is not None}
    paths = {number: os.path.join(directory, file_name(number)) for number in heads}
    votes = Counter(([] if secret is None else [secret]) + [h.secret for h in heads.values()])
    chosen = max(votes, key=votes.__getitem__, default=0)  # The first of several.
    same_log = [paths[number] for number, head in heads.items() if head.secret == chosen]
    for number, head in heads.items():
        if head.secret != chosen:
            other_path = same_log[0] if same_log else os.path.join(directory, "secret")
            raise StoreError(
                f"{paths[number]} is of another log than {other_path}: put back the right one, as "
                "from a backup, or make the segment empty to continue without its records"
            )
