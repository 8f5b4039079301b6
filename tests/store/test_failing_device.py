# SPDX-License-Identifier: Apache-2.0
"""A real ext4 on a device that returns errors, unmounted and mounted again to see what it holds.

The device is a loop device over a sparse file in a small tmpfs: while that is full, blocks that
were never written before cannot be. It needs root, as the continuous run has; without, the same is
shown on the disk of :mod:`headrace.testing.disk`, which loses what this device loses.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.model.message import PERSISTENT, Message, new_message
from headrace.store.disk import Disk
from headrace.store.journal.journal import Journal
from headrace.store.stream.log import DiskStreamLog
from headrace.testing.disk import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = (1).to_bytes(4, "big")
WARM = 400  # Changes of the file system that are enough to write all of its own journal.


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class LoopDevice:
    """A mounted ext4 whose device can be made to fail."""

    def __init__(self, tmp_path: Path) -> None:
        self.disk = Disk()
        self.below, self.top = tmp_path / "below", tmp_path / "top"
        self.below.mkdir()
        self.top.mkdir()
        self.directory = str(self.top / "data")
        self.undo = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            run("mount", "-t", "tmpfs", "-o", "size=24m", "none", str(self.below))
            stack.callback(run, "umount", "-l", str(self.below))
            image, self.ballast = self.below / "image", self.below / "ballast"
            self.ballast.touch()
            with image.open("wb") as file:
                file.truncate(48 << 20)
            run("mkfs.ext4", "-q", "-F", "-b4096", "-Jsize=4", "-Elazy_itable_init=0", str(image))
            self.device = run("losetup", "-f", "--show", str(image))
            stack.callback(run, "losetup", "-d", self.device)
            # A request of several pages that fails in the middle would be called a success.
            name = self.device.rpartition("/")[2]
            Path(f"/sys/block/{name}/queue/max_sectors_kb").write_text("4")
            self.mount()
            stack.callback(run, "umount", "-l", str(self.top))
            self.warm()
            self.undo = stack.pop_all()

    def mount(self) -> None:
        run("mount", "-t", "ext4", self.device, str(self.top))

    def warm(self) -> None:
        """Have all of the file system's own journal written, so that only data can fail."""
        handle = os.open(self.top, os.O_RDONLY)
        for number in range(WARM):
            (self.top / f"warm-{number}").touch()
            os.fsync(handle)
        for number in range(WARM):
            (self.top / f"warm-{number}").unlink()
        os.close(handle)

    def fail(self) -> None:
        """Let no block be written that was not written before."""
        os.sync()
        handle = os.open(self.ballast, os.O_WRONLY)
        with contextlib.suppress(OSError):
            while os.write(handle, bytes(4096)):
                pass
        os.close(handle)

    def heal(self) -> None:
        os.truncate(self.ballast, 0)

    def lose_cache(self) -> None:
        run("umount", str(self.top))
        self.mount()

    def close(self) -> None:
        self.undo.close()


class Model:
    """The same of the disk in memory."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(seed=3)
        self.directory = "/data"

    def fail(self) -> None:
        self.disk.sync_error_rate = 1.0

    def heal(self) -> None:
        self.disk.sync_error_rate = 0.0

    def lose_cache(self) -> None:
        self.disk.power_cut()

    def close(self) -> None:
        """There is nothing to undo."""


@pytest.fixture(params=["ext4", "model"])
def device(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LoopDevice | Model]:
    real = request.param == "ext4" and os.geteuid() == 0
    made = LoopDevice(tmp_path) if real else Model()
    yield made
    made.close()


def open_journal(device: LoopDevice | Model) -> Journal:
    return Journal(
        f"{device.directory}/journal", disk=device.disk, free_min=0, threaded=False, name="test"
    )


def publish(journal: Journal, seq: int, size: int) -> Message:
    message = new_message(b"\x01e\x01k\x00\x00" + bytes([seq]) * size, 4, size)
    message.seq, message.flags = seq, PERSISTENT
    message.position = journal.publish_message(message, 1000 + seq, QUEUE)
    return message


def step(journal: Journal) -> bool:
    journal.start_write()
    done = journal.writer.step()
    journal.woken()
    return done


def found(journal: Journal) -> list[int]:
    seqs = []
    for _, message, _ in journal.recover():
        journal.load(message)
        assert message.data is not None
        assert message.data.endswith(bytes([message.seq]) * 500)
        seqs.append(message.seq)
    return seqs


def test_what_is_confirmed_after_a_failed_sync_is_there_after_a_remount(
    device: LoopDevice | Model, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(device)
    assert found(journal) == []
    publish(journal, 1, 500)  # It shares its page with what fails.
    assert step(journal)
    device.fail()
    waiting = publish(journal, 2, 12_000)
    for _ in range(3):
        assert not step(journal)
    assert journal.full
    journal.load(waiting)  # What is not durable can be read.
    device.heal()
    assert step(journal)
    assert not journal.full
    publish(journal, 3, 500)
    assert step(journal)
    assert journal.synced == journal.appended
    (line,) = [r.getMessage() for r in caplog.records if "in a new file now" in r.getMessage()]
    assert "0 bytes of the old one could not be read" in line
    for segment in journal.segments.values():
        journal.files.close(segment)
    journal.files.close_replaced()
    device.lose_cache()
    journal = open_journal(device)
    assert found(journal) == [1, 2, 3]
    journal.close()


def test_a_stream_keeps_what_it_confirmed_after_a_failed_sync(device: LoopDevice | Model) -> None:
    journal = open_journal(device)
    assert found(journal) == []
    home = f"{device.directory}/streams/1"
    stream = DiskStreamLog(home, journal, segment_size=1 << 20)

    def append(number: int, size: int) -> None:
        stream.append(b"\x01e\x01k\x00\x00" + bytes([number]) * size, 4, size, 1000 + number)

    append(1, 500)
    assert step(journal)
    device.fail()
    append(2, 12_000)
    for _ in range(3):
        assert not step(journal)
    device.heal()
    assert step(journal)
    append(3, 500)
    assert step(journal)
    assert [record[0] for record in stream.read(0, 1 << 20)] == [0, 1, 2]
    stream.close()
    journal.close()
    device.lose_cache()
    journal = open_journal(device)
    stream = DiskStreamLog(home, journal, segment_size=1 << 20)
    assert found(journal) == []
    bodies = [data[6:7] for _, data, _, _, _ in stream.read(0, 1 << 20)]
    assert bodies == [b"\x01", b"\x02", b"\x03"]
    stream.close()
    journal.close()


def test_a_process_that_dies_after_a_failed_sync_leaves_nothing_unproven(
    device: LoopDevice | Model, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(device)
    assert found(journal) == []
    publish(journal, 1, 500)
    assert step(journal)
    device.fail()
    publish(journal, 2, 12_000)
    assert not step(journal)
    device.heal()
    for segment in journal.segments.values():  # The process is gone; the page cache is not.
        journal.files.close(segment)
    journal = open_journal(device)
    assert found(journal)[:1] == [1]
    publish(journal, 3, 500)
    assert step(journal)
    assert [r for r in caplog.records if "in a new file now" in r.getMessage()]
    for segment in journal.segments.values():
        journal.files.close(segment)
    device.lose_cache()
    journal = open_journal(device)
    seqs = found(journal)
    assert seqs[:1] + seqs[-1:] == [1, 3]
    journal.close()
