# SPDX-License-Identifier: Apache-2.0
"""Conversations on their way to Wireshark: recorded by a proxy, written as a capture, read again.

The capture says what a network would have carried: TCP segments of one connection over IPv4, with
sequence numbers that fit. `tshark` takes it from there, and what it decoded is given back.
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
SEGMENT = 1400  # Octets of one TCP segment.
CLIENT, BROKER = (b"\x0a\0\0\1", 40000), (b"\x0a\0\0\2", 5672)
SYN, PUSH, ACK = 2, 8, 16


class Recorder:
    """A proxy for one connection that keeps what passes, in order."""

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
        """Wait for the end of the connection and return who sent what."""
        self._thread.join(PATIENCE_S)
        self._listener.close()
        return self.chunks


def write_capture(path: Path, chunks: list[tuple[str, bytes]]) -> None:
    """Write the conversation as a capture file."""
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
        for at in range(0, len(data), SEGMENT):
            add(who, PUSH | ACK, data[at : at + SEGMENT])
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, RAW_IP))
        for number, packet in enumerate(packets):
            file.write(struct.pack("<IIII", number, 0, len(packet), len(packet)))
            file.write(packet)


@dataclass
class Dissected:
    """One frame, as Wireshark understands it."""

    sender: str
    text: str = ""  # What it is: "Method: Declare (10)" and the like.
    fields: list[tuple[str, str, str]] = field(default_factory=list)  # Name, shown, text.

    def shown(self, name: str) -> list[str]:
        """The values shown of all fields whose name ends so."""
        return [shown for found, shown, _ in self.fields if found.split(".")[-1] == name]

    def first(self, name: str) -> str:
        """The value shown of the first field with this whole name; empty when there is none."""
        return next((shown for found, shown, _ in self.fields if found == name), "")


def tshark(*arguments: str) -> str:
    """Run tshark and return what it prints."""
    found = shutil.which("tshark")
    assert found, "tests/interop needs tshark; on Debian: apt-get install tshark."
    run = subprocess.run(
        [found, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def complaints(path: Path) -> str:
    """The packets that tshark finds malformed; empty when there are none.

    (A close with an error code is worth a remark to it as well: that is another group.)
    """
    return tshark(
        "-r", str(path), "-Y", "_ws.malformed || (amqp && _ws.expert.group == 0x07000000)"
    )


def dissect(path: Path) -> list[Dissected]:
    """Return every AMQP frame and protocol header that tshark finds, in order."""
    found: list[Dissected] = []
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
                found.append(frame)
    return found
