# SPDX-License-Identifier: Apache-2.0
"""Wireshark's dissectors read what our client and our broker say: an independent decoder.

The conversations are recorded on the wire, written as captures, and read with `tshark`. Nothing may
be malformed, and every field that both sides know by name must have the same value for both.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from headrace.protocol.codec_0_10 import (
    ExecutionResult,
    decode_command,
    decode_control,
    decode_headers,
)
from headrace.protocol.codec_0_x import decode_content_header, decode_method
from headrace.protocol.fields import Fields
from headrace.spec.tables import V0_9_1
from headrace.wire.ranges import SequenceSet
from support.conversations.client_conversations import TALKS, converse
from support.pcap import Dissected, complaints, dissect, write_capture

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.brokers.broker_process import Remote, Served

# What this version of the dissector calls otherwise than the standard, or reads wrongly.
OTHER_NAMES = {"max_frame_size": "frame_max", "no_local": "nolocal", "no_wait": "nowait"}
MISREAD = {
    "exchange.bind.binding_key",  # It shows the octet of the size.
    "exchange.bound.binding_key",
    "connection.open.capabilities",  # An array: shown by its type octet only.
    "connection.open-ok.known_hosts",
    "connection.start.mechanisms",
    "connection.start.locales",
}


# Booleans of Wireshark 4.4 and newer.
SPELLED = {"False": "0", "True": "1"}
TX = 5  # The dissector looks for commands and session headers of this class an octet too late.


def normal(name: str) -> str:
    """A field's name in one spelling."""
    return name.split(".")[-1].replace("-", "_")


def shown(value: Any) -> str | None:
    """A value as the dissector shows it; None for what it shows in its own way."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Enum):
        return str(int(value.value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex(":")
    return None


class Comparison:
    """Return the fields that were compared, and those that tshark did not show."""

    def __init__(self) -> None:
        self.compared: set[str] = set()
        self.unseen: set[str] = set()

    def values(self, name: str, made: Any, frame: Dissected) -> None:
        """Compare the fields of a method, command, control or struct."""
        assert isinstance(made, Fields)
        for each in made.FIELDS:
            value = getattr(made, each)
            key = f"{name}.{each}"
            if value is None or key in MISREAD:
                continue
            if isinstance(value, dict):
                self.table(key, value, frame)
                continue
            if isinstance(value, SequenceSet):
                texts = [text for found, _, text in frame.fields if found.endswith("commands")]
                texts += [text for found, _, text in frame.fields if found.endswith("transfers")]
                ranges = ", ".join(f"({lo}, {hi})" for lo, hi in value)
                if any("[" in text for text in texts):
                    assert any(f"[{ranges}]" in text for text in texts), (key, texts)
                    self.compared.add(key)
                else:
                    self.unseen.add(key)
                continue
            text = shown(value)
            wanted = OTHER_NAMES.get(each, each)
            found = [(show, line) for field, show, line in frame.fields if normal(field) == wanted]
            if text is None or not found:
                self.unseen.add(key)
                continue
            right = any(
                SPELLED.get(show, show) == text
                or (show.startswith("0x") and text.isdigit() and int(show, 16) == int(text))
                for show, _ in found
            )
            assert right, (key, text, found)
            self.compared.add(key)

    def table(self, key: str, table: dict[str, Any], frame: Dissected) -> None:
        """Compare the entries of a table or map; text, numbers and booleans by value."""
        lines = [line for field, _, line in frame.fields if field.startswith("amqp.field")]
        for name, value in table.items():
            mine = [line for line in lines if line.startswith(f"{name} (")]
            if not mine:
                self.unseen.add(key)
                continue
            if all("unimplemented type" in line for line in mine):
                assert all("value field length" in line for line in mine)
            elif isinstance(value, bool):
                assert any(line.lower().endswith(str(value).lower()) for line in mine), (key, mine)
            elif isinstance(value, int | str):
                assert any(line.endswith(f": {value}") for line in mine), (key, value, mine)
            self.compared.add(key)


def frames_0_x(octets: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 8 if octets.startswith(b"AMQP") else 0
    while at < len(octets):
        size = int.from_bytes(octets[at + 3 : at + 7], "big")
        yield (
            octets[at],
            int.from_bytes(octets[at + 1 : at + 3], "big"),
            octets[at + 7 : at + 7 + size],
        )
        assert octets[at + 7 + size] == 0xCE
        at += size + 8


def frames_0_10(octets: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 8
    while at < len(octets):
        size = int.from_bytes(octets[at + 2 : at + 4], "big")
        yield (
            octets[at + 1],
            int.from_bytes(octets[at + 6 : at + 8], "big"),
            octets[at + 12 : at + size],
        )
        at += size


def compare_0_9_1(kind: int, payload: bytes, frame: Dissected, result: Comparison) -> None:
    if kind == 1:
        method = decode_method(V0_9_1, payload)
        assert frame.first("amqp.method.class") == str(int.from_bytes(payload[:2], "big"))
        assert frame.first("amqp.method.method") == str(int.from_bytes(payload[2:4], "big"))
        result.compared.add(method.NAME)
        result.values(method.NAME, method, frame)
    elif kind == 2:
        header = decode_content_header(V0_9_1, payload)
        assert frame.first("amqp.header.body-size") == str(header[1])
        result.values("basic.properties", header[2], frame)
    elif kind == 3:
        assert frame.first("amqp.payload") == payload.hex(":")


def compare_0_10(kind: int, payload: bytes, frame: Dissected, result: Comparison) -> None:
    if kind < 2:
        made = decode_control(payload) if kind == 0 else decode_command(payload)[1]
        name = made.NAME
        assert frame.first("amqp.class") == str(payload[0])
        if payload[0] != TX:
            methods = [show for found, show, _ in frame.fields if found.endswith(".method")]
            assert methods[0] == str(payload[1])
            if kind == 1:
                sync = frame.first("amqp.session.header.sync")
                assert SPELLED.get(sync, sync) == str(payload[3])
        result.compared.add(name)
        result.values(name, made, frame)
        if isinstance(made, ExecutionResult) and made.value is not None:
            result.values(made.value.NAME, made.value, frame)
    elif kind == 2:
        for struct in decode_headers(payload):
            result.compared.add(struct.NAME)
            result.values(struct.NAME, struct, frame)
    else:
        assert frame.first("amqp.payload") in ("", payload.hex(":"))


# Another broker, named by HEADRACE_INTEROP_URL, is one of 0-9-1.
@pytest.mark.parametrize("version", ["0-9-1"] if "HEADRACE_INTEROP_URL" in os.environ else TALKS)
def test_wireshark_understands_what_we_understand(
    version: str, broker: Served | Remote, tmp_path: Path
) -> None:
    chunks = converse(broker.url, version)
    path = tmp_path / "talk.pcap"
    write_capture(path, chunks)
    assert complaints(path) == ""
    dissected = dissect(path)
    result = Comparison()
    for sender in ("client", "broker"):
        octets = b"".join(data for who, data in chunks if who == sender)
        theirs = [frame for frame in dissected if frame.sender == sender]
        if octets.startswith(b"AMQP"):
            header = [frame for frame in theirs if frame.first("amqp.init.protocol")]
            if version == "0-10":  # Of 0-9-1 it knows the frames, but shows no header.
                assert header[0].first("amqp.init.version_major") == str(octets[6])
                assert header[0].first("amqp.init.version_minor") == str(octets[7])
            theirs = theirs[len(header) :]
        read = frames_0_10 if version == "0-10" else frames_0_x
        ours = list(read(octets))
        assert len(theirs) == len(ours)
        for (kind, channel, payload), frame in zip(ours, theirs, strict=True):
            assert frame.first("amqp.type") == str(kind)
            assert frame.first("amqp.channel") == str(channel)
            (compare_0_10 if version == "0-10" else compare_0_9_1)(kind, payload, frame, result)
    assert len(result.compared) > 130
    assert len(result.unseen) < 20, sorted(result.unseen)
