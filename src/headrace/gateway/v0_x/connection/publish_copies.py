# SPDX-License-Identifier: Apache-2.0
"""Sender-selected distribution: further routing keys in the headers CC and BCC of a message.

Both are arrays of strings, or numbered tables in versions without arrays. A queue gets the message
once, whichever of its keys match; BCC is removed before delivery.
"""

from __future__ import annotations

from headrace.gateway.conversion.headers import header_at, read_headers
from headrace.model.arguments.values import as_list, type_name
from headrace.model.contents import ROUTING_KEYS_MAX
from headrace.model.errors import PreconditionFailed
from headrace.wire.properties import without_header_entry


def extract_cc_keys(data: bytes, header: int) -> tuple[bytes, tuple[str, ...]]:
    """Remove the BCC header of a publish; return the publish and the routing keys of CC and BCC.

    ``data`` is laid out as in :class:`headrace.model.message.Message`; its header frame starts at
    ``header``.
    """
    payload, end = header_at(data, header)
    headers = read_headers(payload)
    keys: list[str] = []
    for name in ("CC", "BCC"):
        values = as_list(headers.get(name, []))
        if not isinstance(values, list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(values)}}}'
            )
        keys += [key for key in values if isinstance(key, str)]
    if len(keys) > ROUTING_KEYS_MAX or any(len(key.encode()) > 255 for key in keys):
        raise PreconditionFailed("invalid message: too many or too long routing keys in CC and BCC")
    if "BCC" in headers:
        payload = without_header_entry(payload, b"BCC")
        size = len(payload).to_bytes(4, "big")
        data = data[: header + 3] + size + payload + data[end:]
    return data, tuple(keys)
