# SPDX-License-Identifier: Apache-2.0
"""Sender-selected distribution for 0-10: the headers CC and BCC of a transfer.

As in :mod:`headrace.gateway.v0_x.connection.publish_copies`, they are arrays of further routing
keys. A queue gets the message once, whichever of its keys match; BCC is removed before delivery.
"""

from __future__ import annotations

from headrace.gateway.v0_10.session.publishing_id import find_headers, without_entry
from headrace.model.arguments.values import as_list
from headrace.model.contents import ROUTING_KEYS_MAX
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.types_0_10 import decode_map

CC_ENTRY = b"\x02CC"
BCC_ENTRY = b"\x03BCC"


def extract_cc_keys(segment: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """Return a header segment without its BCC header, and the routing keys of CC and BCC.

    Raises:
        ExecutionError: the segment is malformed, or CC or BCC has no routing keys.
    """
    struct, start, stop = find_headers(segment)
    if not start:
        return segment, ()
    headers = decode_map(segment, start)[0]
    keys: list[bytes] = []
    for name in ("CC", "BCC"):
        values = as_list(headers.get(name, []))
        if not isinstance(values, list | tuple):
            raise _refusal(f"{name} is not an array")
        keys += [key.encode() for key in values if isinstance(key, str)]
    if len(keys) > ROUTING_KEYS_MAX or any(len(key) > 255 for key in keys):
        raise _refusal("too many or too long routing keys in CC and BCC")
    if "BCC" in headers:
        segment = without_entry(segment, struct, start, stop, b"BCC")
    return segment, tuple(keys)


def _refusal(text: str) -> ExecutionError:
    return ExecutionError(ExecutionCode.PRECONDITION_FAILED, f"invalid message: {text}")
