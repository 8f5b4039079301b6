# SPDX-License-Identifier: Apache-2.0
"""Decode conversations by Wireshark: a proxy records them, and `tshark` reads them as a capture.

The capture contains the TCP segments that a network would have carried: a connection over IPv4 with
consistent sequence numbers.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import subprocess
import threading
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

from support.timeouts import PATIENCE_S

RAW_IP = 101  # The capture's link type: packets begin with their IP header.
SEGMENT_SIZE = 1400  # Bytes of a TCP segment.
CLIENT, BROKER = (b"\x0a\0\0\1", 40000), (b"\x0a\0\0\2", 5672)
SYN, PUSH, ACK = 2, 8, 16


class Recorder:
    """A proxy for a connection, which records the bytes of both sides in order."""

    def __init__(self, host: str, port: int) -> None:
        self._peer = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.chunks: list[tuple[str, bytes]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        broker = socket.create_connection(self._peer)
        back = threading.Thread(target=self._copy, args=(broker, client, "broker"))
        back.start()
        self._copy(client, broker, "client")
        back.join()
        client.close()
        broker.close()

    def _copy(self, source: socket.socket, target: socket.socket, who: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.chunks.append((who, data))
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def finish(self) -> list[tuple[str, bytes]]:
        """Wait for the end of the connection; return the sender and the bytes of each chunk."""
        self._thread.join(PATIENCE_S)
        self._listener.close()
        return self.chunks


def write_capture(path: Path, chunks: list[tuple[str, bytes]]) -> None:
    """Write a conversation as a capture file."""
    packets: list[bytes] = []
    sent = {"client": 1, "broker": 1}

    def add(who: str, flags: int, data: bytes) -> None:
        ends = (CLIENT, BROKER) if who == "client" else (BROKER, CLIENT)
        other = "broker" if who == "client" else "client"
        at = sent[who] - 1 if flags & SYN else sent[who]
        seen = sent[other] if flags & ACK else 0
        tcp = struct.pack(">HHIIBBHHH", ends[0][1], ends[1][1], at, seen, 80, flags, 65535, 0, 0)
        size = 20 + len(tcp) + len(data)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size, 0, 0, 64, 6, 0, ends[0][0], ends[1][0])
        packets.append(ip + tcp + data)
        sent[who] += len(data)

    add("client", SYN, b"")
    add("broker", SYN | ACK, b"")
    add("client", ACK, b"")
    for who, data in chunks:
        for at in range(0, len(data), SEGMENT_SIZE):
            add(who, PUSH | ACK, data[at : at + SEGMENT_SIZE])
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, RAW_IP))
        for number, packet in enumerate(packets):
            file.write(struct.pack("<IIII", number, 0, len(packet), len(packet)))
            file.write(packet)


@dataclass
class Dissected:
    """An AMQP frame as Wireshark decodes it."""

    sender: str
    text: str = ""  # The kind of frame, such as "Method: Declare (10)".
    fields: list[tuple[str, str, str]] = field(default_factory=list)  # Name, value, text.

    def shown(self, name: str) -> list[str]:
        """Return the values of all fields whose last part of the name is `name`."""
        return [value for path, value, _ in self.fields if path.split(".")[-1] == name]

    def first(self, name: str) -> str:
        """Return the value of the first field with a complete name; "" if there is none."""
        return next((value for path, value, _ in self.fields if path == name), "")


def tshark(*arguments: str) -> str:
    """Run tshark and return its output."""
    program = shutil.which("tshark")
    assert program, "tests/interop needs tshark; on Debian: apt-get install tshark."
    run = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def complaints(path: Path) -> str:
    """Return tshark's lines about malformed packets; "" if there are none.

    Its remarks about closes with an error code are in another group and left out.
    """
    return tshark(
        "-r", str(path), "-Y", "_ws.malformed || (amqp && _ws.expert.group == 0x07000000)"
    )


def dissect(path: Path) -> list[Dissected]:
    """Return the AMQP frames and protocol headers of a capture, in order."""
    frames: list[Dissected] = []
    root = ET.fromstring(tshark("-r", str(path), "-Y", "amqp", "-T", "pdml"))
    for packet in root:
        ports = [
            element.get("show") for element in packet.iter() if element.get("name") == "tcp.srcport"
        ]
        sender = "broker" if ports == [str(BROKER[1])] else "client"
        for proto in packet:
            if proto.get("name") == "amqp":
                frame = Dissected(sender)
                for element in proto.iter():
                    name = element.get("name") or ""
                    if name and name != "amqp":
                        frame.fields.append(
                            (name, element.get("show") or "", element.get("showname") or "")
                        )
                frames.append(frame)
    return frames
