# SPDX-License-Identifier: Apache-2.0
"""The common part of decoders, which turn bodies into one Arrow array and their faults."""

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
PIECES: Final = 8  # A batch that cannot be decoded as a whole is cut into this many.
PIECE_MIN: Final = 40  # Bodies of a piece; a smaller piece is decoded row by row.
REGISTRY_LENGTH: Final = 5  # A zero, and the id of a schema in four bytes.
RESCUED_LENGTH_MAX: Final = 1 << 20  # Characters of the rescued data of one row.


@dataclass(slots=True)
class Decoded:
    """The outcome of decoding some bodies.

    `values` has one value for each body, and null for a malformed one; `faults` has the reasons,
    by index. `rescued` has the values of rows that fit no column, as JSON by index. `grown` is the
    schema with the new columns, or None without any.
    """

    values: pa.Array
    faults: dict[int, str] = field(default_factory=dict)
    rescued: dict[int, str] = field(default_factory=dict)
    grown: StructType | None = None
    first_new: int | None = None  # The index of the first row with a new column.


class FastCodec(Protocol):
    """A decoder with a batch mode, which refuses a batch that has a malformed body."""

    def decode_together(self, bodies: Sequence[bytes]) -> pa.Array | None:
        """Return the values of a batch; None if the batch must be decoded row by row."""
        ...

    def decode_each(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode row by row; this decides whether a body is malformed."""
        ...


def decode_in_pieces(codec: FastCodec, bodies: Sequence[bytes]) -> Decoded:
    """Decode a batch as a whole if possible, otherwise in pieces, and the smallest row by row.

    A malformed body therefore slows down its neighbours only, not the whole batch.
    """
    values = codec.decode_together(bodies) if bodies else None
    if values is not None:
        return Decoded(values)
    if len(bodies) <= PIECE_MIN:
        return codec.decode_each(bodies)
    size = max(PIECE_MIN, -(-len(bodies) // PIECES))
    starts = range(0, len(bodies), size)
    return _join(
        [(at, decode_in_pieces(codec, bodies[at : at + size])) for at in starts],
    )


def _join(pieces: Sequence[tuple[int, Decoded]]) -> Decoded:
    """Join decoded pieces, each with the index of its first body."""
    from headrace.columns.decode.infer import grow

    whole = Decoded(pa.concat_arrays([piece.values for _, piece in pieces]))
    for start, piece in pieces:
        whole.faults |= {start + index: text for index, text in piece.faults.items()}
        whole.rescued |= {start + index: text for index, text in piece.rescued.items()}
        if piece.grown is not None:
            grown_before = whole.grown
            whole.grown = piece.grown if grown_before is None else grow(grown_before, piece.grown)
        if piece.first_new is not None and whole.first_new is None:
            whole.first_new = start + piece.first_new
    return whole


class Codec(Protocol):
    """A decoder of bodies."""

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode some bodies; nothing about their contents raises."""
        ...


class RegistryFraming:
    """Bodies after five bytes of framing: a zero and a schema id, which the codec ignores."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode the bodies without their framing; a body without framing is malformed."""
        decoded = self._codec.decode([strip_framing(body) or b"" for body in bodies])
        for at in [at for at, body in enumerate(bodies) if strip_framing(body) is None]:
            assert at in decoded.faults, "an empty body is bad in each format that has this framing"
            decoded.faults[at] = "the mark of a schema registry is missing"
        return decoded


def strip_framing(body: bytes) -> bytes | None:
    """Return the body without the framing of a schema registry; None if it has none."""
    return body[REGISTRY_LENGTH:] if body[:1] == b"\0" and len(body) > REGISTRY_LENGTH else None


@dataclass(frozen=True, slots=True)
class Policy:
    """A decoder's treatment of values that do not fit.

    `unknown`: whether fields without a column are reported. `rescue`: whether a value that does
    not fit its type is rescued, and its column null, instead of making the row malformed.
    """

    unknown: bool = False
    rescue: bool = False


def reason(text: object) -> str:
    """Return the text of a fault of a row, in one line of bounded length."""
    return " ".join(str(text).split())[:REASON_LENGTH_MAX]


def rescued_json(misfits: Sequence[Misfit]) -> str:
    """Return the values of a row that found no column, by path."""
    inner = ",".join(f"{json.dumps(misfit.path)}:{dumps(misfit.value)}" for misfit in misfits)
    text = "{" + inner + "}"
    if len(text) > RESCUED_LENGTH_MAX:
        paths = [misfit.path for misfit in misfits]
        text = json.dumps({"_too_large": paths})[:RESCUED_LENGTH_MAX]
    return text if text.isascii() else text.encode(errors="replace").decode()


class TextCodec:
    """Bodies as text."""

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Decode UTF-8; any other body is malformed."""
        octets = pa.array(bodies, pa.binary())
        try:
            return Decoded(octets.cast(pa.string()))
        except pa.ArrowInvalid:
            pass
        texts: list[str | None] = []
        faults = {}
        for index, body in enumerate(bodies):
            try:
                texts.append(body.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                faults[index] = reason(
                    f"the body is not valid UTF-8: {error.reason} at {error.start}"
                )
        return Decoded(pa.array(texts, pa.string()), faults)


class BinaryCodec:
    """Bodies as they are."""

    def decode(self, bodies: Sequence[bytes]) -> Decoded:
        """Return the bodies; none is malformed."""
        return Decoded(pa.array(bodies, pa.binary()))
