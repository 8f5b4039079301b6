# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to in 0-10; see :mod:`headrace.gateway.messages.direct_reply_to`.

The queue for replies is the session's. A request has the name in the routing key of its reply-to;
the exchange is left out or empty.
"""

from __future__ import annotations

from headrace.gateway.messages.direct_reply_to import REPLY_TO, Requester, reply_address
from headrace.gateway.v0_10.session.transfer_header import malformed
from headrace.model.errors import PreconditionFailed
from headrace.protocol.codec_0_10 import (
    MessageProperties,
    ReplyTo,
    decode_headers,
    encode_headers,
)
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.errors import MalformedError

ENTRY = bytes((len(REPLY_TO),)) + REPLY_TO.encode()  # Contained in a header segment with it.


def set_reply_address(session: Requester, segment: bytes) -> bytes:
    """Return a request's header segment with the name of the session's own queue in it.

    Raises:
        ExecutionError: the segment is malformed, or the session has no subscription for replies.
    """
    try:
        structs = decode_headers(segment)
    except MalformedError as error:
        raise malformed(str(error)) from None
    for struct in structs:
        if not isinstance(struct, MessageProperties) or struct.reply_to is None:
            continue
        if struct.reply_to.routing_key != REPLY_TO or struct.reply_to.exchange:
            continue
        try:
            name = reply_address(session)
        except PreconditionFailed as error:
            raise ExecutionError(ExecutionCode.PRECONDITION_FAILED, error.text) from None
        struct.reply_to = ReplyTo(exchange=struct.reply_to.exchange, routing_key=name)
        return encode_headers(structs)
    return segment  # The name is in another place of the segment.
