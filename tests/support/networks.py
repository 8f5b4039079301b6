# SPDX-License-Identifier: Apache-2.0
"""Network namespaces on one switch, and what goes from one to another and is lost.

Only root makes them. Addresses are of 198.18.0.0/15, which is for tests of networks: each process
has 16 of them, those of its number. What is cut vanishes without an answer, as in a real partition:
it is sent to a machine that is not there.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = "02:00:00:00:00:01"  # No machine's address.
CLONE_NEWNET = 0x40000000
NETS = 1 << 13  # Of 16 addresses each, so that processes beside each other have their own.
SWITCH = 14  # The last number of the address of this process.


def possible() -> bool:
    """Return True if this process may make namespaces, and has the programs."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter"))):
        return False
    made = ip("link", "add", f"hrt{os.getpid()}", "type", "bridge", check=False)
    return made and ip("link", "del", f"hrt{os.getpid()}", check=False)


def ip(*words: str, check: bool = True) -> bool:
    """Run ip(8); return True if it succeeded."""
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.returncode == 0


def remove_abandoned() -> None:
    """Remove switches and places of killed processes: a new process may get their addresses."""
    for path in (*Path("/sys/class/net").glob("hr[0-9]*"), *Path("/run/netns").glob("hr-*-*")):
        match = re.fullmatch(r"hr-?(\d+)(-\d+)?", path.name)
        if match is None or Path(f"/proc/{match[1]}").exists():
            continue
        kind = "netns" if path.name.startswith("hr-") else "link"
        ip(kind, "del", path.name, check=False)  # Another process may have been first.


class Place:
    """A namespace, or the one of this process, with its address on the switch."""

    def __init__(self, namespace: str, address: str, device: str) -> None:
        self.namespace = namespace  # Empty: that of this process.
        self.address = address
        self.device = device
        self.path = f"/run/netns/{namespace}"

    def command(self) -> list[str]:
        """Return what a program is run by in this place."""
        return ["nsenter", f"--net={self.path}"]

    def run_ip(self, *words: str, check: bool = True) -> None:
        ip(*(("-n", self.namespace) if self.namespace else ()), *words, check=check)

    def listen(self) -> socket.socket:
        """Return a socket of this process that listens in this place, on a free port."""
        made: list[socket.socket] = []

        def make() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with Path(self.path).open("rb") as namespace:
                if libc.setns(namespace.fileno(), CLONE_NEWNET):  # Of this thread alone.
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(socket.create_server((self.address, 0)))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]

    def lose(self, other: Place) -> None:
        """Let all vanish that goes from here to another place."""
        self.run_ip(
            *("neigh", "replace", other.address, "lladdr", NOBODY),
            *("dev", self.device, "nud", "permanent"),
        )

    def find(self, other: Place) -> None:
        """Let what goes to another place arrive again."""
        self.run_ip("neigh", "del", other.address, "dev", self.device, check=False)


class Networks:
    """A switch and the places on it."""

    def __init__(self) -> None:
        number = os.getpid()
        self.net = ipaddress.ip_network("198.18.0.0/15").network_address + number % NETS * 16
        self.bridge = f"hr{number}"
        self.here = Place("", str(self.net + SWITCH), self.bridge)
        self.places: list[Place] = []
        remove_abandoned()
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.here.address}/28", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

    def add(self) -> Place:
        """Make a place."""
        number = len(self.places) + 1
        assert number < SWITCH
        port, inside = f"hr{os.getpid()}-{number}", "eth0"
        place = Place(f"hr-{os.getpid()}-{number}", str(self.net + number), inside)
        ip("netns", "add", place.namespace)
        self.places.append(place)
        ip("link", "add", port, "type", "veth", "peer", "name", inside, "netns", place.namespace)
        ip("link", "set", port, "master", self.bridge, "up")
        place.run_ip("addr", "add", f"{place.address}/28", "dev", inside)
        for device in (inside, "lo"):
            place.run_ip("link", "set", device, "up")
        return place

    def cut(self, one: Place, other: Place) -> None:
        """Let nothing pass between two places."""
        one.lose(other)
        other.lose(one)

    def mend(self, one: Place, other: Place) -> None:
        one.find(other)
        other.find(one)

    def close(self) -> None:
        """Remove all."""
        for place in self.places:
            ip("netns", "del", place.namespace, check=False)
        ip("link", "del", self.bridge, check=False)


@contextlib.contextmanager
def networks() -> Iterator[Networks]:
    """Make a switch, for a time."""
    made = Networks()
    try:
        yield made
    finally:
        made.close()


# A broker whose clock of the day jumps by the seconds that a file has.
JUMPING_CLOCK = """
import mmap, struct, sys, time
with open(sys.argv.pop(1), "r+b") as file:
    shared = mmap.mmap(file.fileno(), 8)
def jumping(real, second):
    return lambda: real() + struct.unpack("q", shared)[0] * second
time.time, time.time_ns = jumping(time.time, 1), jumping(time.time_ns, 10**9)
from headrace.cli import main
main()
"""


def with_jumping_clock(file: str) -> list[str]:
    """Return the program of a broker whose clock a file shifts; see :func:`jump`."""
    jump(file, 0)
    return [sys.executable, "-c", JUMPING_CLOCK, file]


def jump(file: str, seconds: int) -> None:
    """Shift the clock of a broker from the real time by so many seconds."""
    path = Path(file)
    with path.open("r+b" if path.exists() else "w+b") as shared:
        shared.write(seconds.to_bytes(8, "little", signed=True))
