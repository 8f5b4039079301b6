# SPDX-License-Identifier: Apache-2.0
"""Interfaces and common functions of codecs, the decoders of bodies to Arrow arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from headrace.columns.decode.values import Misfit, dumps

if TYPE_CHECKING:
    from headrace.columns.schema.types import StructType

REASON_LENGTH_MAX: Final = 300  # Characters of the reason why one row is malformed.
CHUNKS: Final = 8  # The number of chunks of a batch that cannot be decoded as a whole.
CHUNK_BODIES_MIN: Final = 40  # A smaller chunk is decoded row by row.
REGISTRY_FRAMING_BYTES: Final = 5  # A zero byte, and the id of a schema in four bytes.
RESCUED_LENGTH_MAX: Final = 1 << 20  # Characters of the rescued data of one row.


@dataclass(slots=True)
class Decoded:
    """The outcome of decoding some bodies; an index is that of a body.

    `values` has one value for each body, null for a malformed body. `faults` has the reason by
    index for malformed bodies. `rescued` has, by index, the values that fit no column, as JSON.
    `grown` is the schema with new columns, or None if there are none.
    """

    values: pa.Array
    faults: dict[int, str] = field(default_factory=dict)
    rescued: dict[int, str] = field(default_factory=dict)
    grown: StructType | None = None
    first_new: int | None = None  # The index of the first body with a new column.


class FastCodec(Protocol):
    """A codec that decodes a whole batch faster if all its bodies are valid."""

    def decode_batch(self, bodies: Sequence[bytes]) -> pa.Array | None:
        """Return the values of a batch; None if the batch must be decoded row by row."""
        ...

    def decode_rows(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode row by row; only this method decides that a body is malformed."""
        ...


def decode_in_chunks(codec: FastCodec, bodies: Sequence[bytes]) -> Decoded:
    """Decode a batch as a whole if possible, otherwise in chunks, and small chunks row by row.

    So a malformed body slows down the decoding of its neighbours only.
    """
    values = codec.decode_batch(bodies) if bodies else None
    if values is not None:
        return Decoded(values)
    if len(bodies) <= CHUNK_BODIES_MIN:
        return codec.decode_rows(bodies)
    size = max(CHUNK_BODIES_MIN, -(-len(bodies) // CHUNKS))
    starts = range(0, len(bodies), size)
    return _join_chunks(
        [(start, decode_in_chunks(codec, bodies[start : start + size])) for start in starts],
    )


def _join_chunks(chunks: Sequence[tuple[int, Decoded]]) -> Decoded:
    """Join decoded chunks, given as pairs of the index of the first body and the outcome."""
    from headrace.columns.decode.infer import grow

    joined = Decoded(pa.concat_arrays([chunk.values for _, chunk in chunks]))
    for start, chunk in chunks:
        joined.faults |= {start + index: text for index, text in chunk.faults.items()}
        joined.rescued |= {start + index: text for index, text in chunk.rescued.items()}
        if chunk.grown is not None:
            grown = joined.grown
            joined.grown = chunk.grown if grown is None else grow(grown, chunk.grown)
        if chunk.first_new is not None and joined.first_new is None:
            joined.first_new = start + chunk.first_new
    return joined


class Codec(Protocol):
    """A decoder of bodies of one format to an Arrow array."""

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode bodies; a malformed body becomes a fault and raises no error."""
        ...


class RegistryFramedCodec:
    """A codec of bodies with the framing of a schema registry, which ignores the schema id."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode the bodies without their framing; a body without framing is malformed."""
        decoded = self._codec.decode([strip_framing(body) or b"" for body in bodies])
        for index in [index for index, body in enumerate(bodies) if strip_framing(body) is None]:
            assert index in decoded.faults, (
                "an empty body is bad in each format that has this framing"
            )
            decoded.faults[index] = "the mark of a schema registry is missing"
        return decoded


def strip_framing(body: bytes) -> bytes | None:
    """Return the body without the framing of a schema registry; None without the framing."""
    return (
        body[REGISTRY_FRAMING_BYTES:]
        if body[:1] == b"\0" and len(body) > REGISTRY_FRAMING_BYTES
        else None
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """The treatment of values that do not fit the schema.

    With `unknown` the codec reports fields without a column. With `rescue` a value that does not
    fit its type is rescued, and its column is null; otherwise the row is malformed.
    """

    unknown: bool = False
    rescue: bool = False


def format_reason(text: object) -> str:
    """Return a fault as one line of at most `REASON_LENGTH_MAX` characters."""
    return " ".join(str(text).split())[:REASON_LENGTH_MAX]


def render_rescued(misfits: Sequence[Misfit]) -> str:
    """Return the misfits of a row as a JSON object by path; only their paths if too long."""
    members = ",".join(f"{json.dumps(misfit.path)}:{dumps(misfit.value)}" for misfit in misfits)
    text = "{" + members + "}"
    if len(text) > RESCUED_LENGTH_MAX:
        paths = [misfit.path for misfit in misfits]
        text = json.dumps({"_too_large": paths})[:RESCUED_LENGTH_MAX]
    return text if text.isascii() else text.encode(errors="replace").decode()


class TextCodec:
    """The codec of the format `string`."""

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode UTF-8; a body that is not UTF-8 is malformed."""
        body_array = pa.array(bodies, pa.binary())
        try:
            return Decoded(body_array.cast(pa.string()))
        except pa.ArrowInvalid:
            pass
        texts: list[str | None] = []
        faults = {}
        for index, body in enumerate(bodies):
            try:
                texts.append(body.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                faults[index] = format_reason(
                    f"the body is not valid UTF-8: {error.reason} at {error.start}"
                )
        return Decoded(pa.array(texts, pa.string()), faults)


class BinaryCodec:
    """The codec of the format `binary`."""

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the bodies; none is malformed."""
        return Decoded(pa.array(bodies, pa.binary()))
