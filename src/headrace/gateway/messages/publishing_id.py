# SPDX-License-Identifier: Apache-2.0
"""The publishing id of a message of 0-x, which is read and removed from its headers.

``x-publishing-id`` is removed, so that a consumer can republish a message with all its headers: the
publisher's id is used already. ``x-publisher-name`` stays, unless it begins with ``amq.headrace.``,
the prefix of the broker's own tools. `headrace.model.vhost.publishing_ids` decides whether the
message is a duplicate.
"""

from __future__ import annotations

from headrace.gateway.conversion.headers import header_at, read_headers
from headrace.model.vhost.publishing_ids import PublishingId, parse_publishing_id
from headrace.wire.properties import without_header_entry

NAME_KEY = "x-publisher-name"
OWN_NAMES = b"amq.headrace."
ID_KEY = "x-publishing-id"
ID_ENTRY = bytes((len(ID_KEY),)) + ID_KEY.encode()


def extract_publishing_id(data: bytes, header: int) -> tuple[bytes, PublishingId | None]:
    """Return a publish of 0-x without its publishing id, and its number; None when it has none.

    ``data`` is laid out as in :class:`headrace.model.message.Message`; its header frame starts at
    ``header``.

    Raises:
        PreconditionFailed: the publishing id is not a number.
    """
    payload, end = header_at(data, header)
    headers = read_headers(payload)
    if ID_KEY not in headers:
        return data, None
    number = parse_publishing_id(headers.get(NAME_KEY), headers[ID_KEY])
    payload = without_header_entry(payload, ID_KEY.encode())
    if number[0].startswith(OWN_NAMES):
        payload = without_header_entry(payload, NAME_KEY.encode())
    size = len(payload).to_bytes(4, "big")
    return data[: header + 3] + size + payload + data[end:], number
