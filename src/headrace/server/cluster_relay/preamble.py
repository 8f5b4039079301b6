# SPDX-License-Identifier: Apache-2.0
"""The preamble of a relayed connection: the user and address of a client that has logged in.

The relaying broker sends a header of its own in place of AMQP's protocol header, and receives a
challenge. It answers with the length of a JSON text (4 bytes), the text, and an HMAC of challenge
and text under a key of the cluster. A challenge is used once, so an answer cannot be replayed.

A link (:mod:`headrace.server.cluster_relay.links`) begins in the same way, with an operator in
place of the client. It has another key, so neither is accepted as the other.
"""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

CHALLENGE_SIZE = 16
MAC_SIZE = 32
TEXT_BYTES_MAX = 65536
PURPOSE = b"relayed connections"
LINKS = b"links of operators"
DEPTH_MAX = 8  # The depth of tables in a client's properties; deeper values become text.


class PreambleError(Exception):
    """A preamble that cannot be sent or accepted; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preamble:
    """A client that another broker has logged in, or an operator there."""

    broker: str  # The name of the broker that has logged the client in.
    user: str
    host: str  # The client's address.
    port: int
    loopback: bool  # True if the address is on that broker's machine.
    encrypted: bool
    version: str  # A version of AMQP, such as 0-9-1.
    mechanism: str
    properties: Mapping[str, object]
    # The following fields are set for the user of a bearer token.
    scopes: list[str] | None = None  # None: the user has an account, with that account's rights.
    source: str = ""  # The issuer of the token.
    expires_s: float | None = None  # Unix time.


def derive_key(secret: bytes, purpose: bytes = PURPOSE) -> bytes:
    """Return the key for ``purpose``, derived from the secret that all brokers share."""
    return hmac.digest(secret, purpose, "sha256")


def pack(key: bytes, challenge: bytes, preamble: Preamble) -> bytes:
    """Return the answer to a challenge.

    Raises:
        PreambleError: the client's properties are too long.
    """
    facts = {**asdict(preamble), "properties": as_json(preamble.properties, DEPTH_MAX)}
    text = json.dumps(facts).encode()
    if len(text) > TEXT_BYTES_MAX:
        raise PreambleError(
            f"the client's properties and scopes take more than {TEXT_BYTES_MAX} bytes"
        )
    mac = hmac.digest(key, challenge + text, "sha256")
    return len(text).to_bytes(4, "big") + text + mac


def is_proved(key: bytes, challenge: bytes, text: bytes, mac: bytes) -> bool:
    """Return True if the answer to a challenge was made with the key."""
    return hmac.compare_digest(hmac.digest(key, challenge + text, "sha256"), mac)


def unpack(key: bytes, challenge: bytes, text: bytes, mac: bytes) -> Preamble:
    """Read the answer to a challenge.

    Raises:
        PreambleError: the answer was not made with the key.
    """
    if not is_proved(key, challenge, text, mac):
        raise PreambleError("a relayed connection does not know the secret of the cluster")
    try:
        return Preamble(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise PreambleError(f"a relayed connection of another version: {error}") from None


def as_json(value: object, depth: int) -> object:
    """Return a value of a field table as a JSON value; bytes become base64, other types text.

    Tables and arrays nested deeper than ``depth`` become text, too.
    """
    if isinstance(value, dict) and depth:
        pairs = cast("dict[object, object]", value).items()
        return {str(key): as_json(item, depth - 1) for key, item in pairs}
    if isinstance(value, list) and depth:
        return [as_json(item, depth - 1) for item in cast("list[object]", value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)
