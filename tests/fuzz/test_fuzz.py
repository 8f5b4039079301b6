# SPDX-License-Identifier: Apache-2.0
"""The fuzzer in small: on this build, on both builds side by side, and under sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fuzz_0_10 import Client as Client010
from fuzz_0_10 import Mutator010, run_any, run_gateway_0_10, run_stream_0_10
from fuzz_0_10 import Server as Server010
from fuzz_0_10 import feed as feed_0_10
from fuzz_0_10 import frames_of as frames_of_0_10
from fuzz_gateway import Rig, run_all, run_gateway
from fuzz_journal import run_journal, sound
from fuzz_mutate import Mutator, frames_of
from fuzz_target import Finding, Server, feed, run_machine, run_stream

from headrace.protocol.v0_10.events import HeartbeatReceived
from headrace.protocol.v0_x.events import Event, HeaderRejected
from headrace.store.journal.journal import Journal
from headrace.store.segment.record import (
    BEGIN,
    CLEAN,
    COMMIT,
    DECIDED,
    DROPPED,
    GROUP,
    MARKED,
    MESSAGE,
    PREPARED,
    RESERVED,
    SEALED,
    SETTLED,
)
from support.conversations import captured_conversations as recorded

if TYPE_CHECKING:
    from headrace.model.message import Message

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORPUS = sorted((HERE / "corpus").glob("*.bin"))
BUILD_S_MAX = 3600  # The first of these tests may have to compile everything.
SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))


def fuzzer(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, str(HERE / "run.py"), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_real_streams_are_understood(path: Path) -> None:
    stream = path.read_bytes()
    assert b"".join(frames_of(stream)) == stream
    run_stream(stream)
    if path.stem.endswith("-client"):
        said = feed(Server(), [stream])
        assert said.count("Failed") == (
            path.stem == "pika-client"
        )  # It asks for what is not there.
        assert said.endswith("CLOSED")
        assert "ContentReceived" in said


def test_bent_streams_are_accepted_or_refused() -> None:
    mutator = Mutator([path.read_bytes() for path in CORPUS], seed=7)
    for data in islice(mutator.inputs(), 200):
        run_all(data)


def test_odd_sessions_leave_the_broker_whole() -> None:
    mutator = Mutator([path.read_bytes() for path in CORPUS], seed=7)
    for data in islice(mutator.sessions(), 200):
        run_all(data)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_broker_serves_real_streams(path: Path) -> None:
    if path.stem.endswith("-client"):
        said = run_gateway(path.read_bytes())
        assert said.startswith("CLOSED")
        assert said.count(" - ") == (path.stem == "pika-client"), said


@pytest.mark.parametrize("name", recorded.NAMES)
def test_real_streams_of_0_10_are_understood(name: str) -> None:
    for side, make in (("client", Server010), ("broker", Client010)):
        stream = recorded.octets(name, side)
        assert b"".join(frames_of_0_10(stream)) == stream
        run_stream_0_10(stream)
        if side == "client":
            assert "Failed" not in feed_0_10(make(), [stream])
    assert run_gateway_0_10(recorded.octets(name, "client"))


def test_bent_streams_and_odd_sessions_of_0_10() -> None:
    for data in islice(Mutator010(seed=7).inputs(), 250):
        run_any(data)


def test_a_seed_gives_the_same_inputs_again() -> None:
    streams = [path.read_bytes() for path in CORPUS]
    once = list(islice(Mutator(streams, seed=3).inputs(), 50))
    assert once == list(islice(Mutator(streams, seed=3).inputs(), 50))
    assert once != list(islice(Mutator(streams, seed=4).inputs(), 50))
    once = list(islice(Mutator010(seed=3).inputs(), 50))
    assert once == list(islice(Mutator010(seed=3).inputs(), 50))
    assert once != list(islice(Mutator010(seed=4).inputs(), 50))


def test_the_fuzzer_sees_a_machine_that_depends_on_splits() -> None:
    class Broken(Server):
        def receive(self, data: bytes) -> list[Event]:
            return [HeaderRejected(data), *Server.receive(self, data)]

    with pytest.raises(Finding, match="chunks"):
        run_machine(Broken, b"AMQP\x00\x00\x09\x01", feed)


def test_the_fuzzer_sees_a_session_that_depends_on_splits() -> None:
    class Broken(Server010):
        def on_turn_end(self) -> None:
            Server010.on_turn_end(self)
            self.events.append(HeartbeatReceived())

    with pytest.raises(Finding, match="chunks"):
        run_machine(Broken, recorded.octets("send-1", "client"), feed_0_10)


def test_the_fuzzer_sees_an_error_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: Any) -> None:
        raise RuntimeError("broken on purpose")

    made = Rig.__init__

    def with_a_bug(self: Rig) -> None:
        made(self)
        self.vhost.declare_queue = broken  # type: ignore[assignment,method-assign]

    monkeypatch.setattr(Rig, "__init__", with_a_bug)
    with pytest.raises(Finding, match=r"broken on purpose|internal error"):
        run_gateway((HERE / "corpus" / "pika-client.bin").read_bytes())


@pytest.mark.parametrize("peaceful", [False, True])
def test_the_fuzzed_journal_has_everything_in_it(peaceful: bool) -> None:
    whole = sound(peaceful)
    wanted = {MESSAGE, SETTLED, RESERVED, DROPPED, GROUP, BEGIN, COMMIT, SEALED, PREPARED, DECIDED}
    assert {one.type for one in whole.records} >= wanted | ({MARKED, CLEAN} if peaceful else set())
    assert whole.owed.keys() < whole.published.keys()
    assert {key: whole.published[key] for key in whole.owed} == whole.owed


@pytest.mark.parametrize(
    ("seq", "text"), [(0, "is lost, its record sound"), (1, "is another one|never published")]
)
def test_the_fuzzer_sees_a_journal_that_loses_or_invents(
    monkeypatch: pytest.MonkeyPatch, seq: int, text: str
) -> None:
    sound(False), sound(True)  # Before the bug.

    class Broken(Journal):
        def recover(self) -> list[tuple[int, Message, int]]:
            found = list(Journal.recover(self))
            if seq == 0:
                return found[: len(found) // 2]
            for _, message, _ in found:
                message.priority += 1
            return found

    def run() -> None:
        for number in range(20):
            run_journal(b"%d" % number)

    monkeypatch.setattr("fuzz_journal.Journal", Broken)
    with pytest.raises(Finding, match=text):
        run()


def test_bent_journals_give_back_what_is_sound() -> None:
    for number in range(150):
        run_journal(b"%d" % number + bytes(range(256)))


@pytest.mark.slow
@pytest.mark.timeout(BUILD_S_MAX)
def test_both_builds_agree_on_every_input() -> None:
    build = [sys.executable, "build_ext.py"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    arguments = ("--digests", "--count", "500", "--seed", "11", "--seconds", "1000")
    uncompiled = fuzzer(*arguments, path=ROOT / "src")
    compiled = fuzzer(*arguments, path=ROOT / "build" / "compiled")
    assert uncompiled.returncode == 0, uncompiled.stderr
    assert compiled.returncode == 0, compiled.stderr
    digests = compiled.stdout.splitlines()
    assert len(digests) == 500
    assert uncompiled.stdout.splitlines() == digests


@pytest.mark.slow
@pytest.mark.timeout(BUILD_S_MAX)
def test_the_sanitized_build_finds_nothing() -> None:
    done = fuzzer("--sanitize", "--seconds", f"{SECONDS:g}", "--seed", "5")
    assert done.returncode == 0, done.stderr
    assert "compiled (sanitized): no finding" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(BUILD_S_MAX)
def test_the_sanitizers_are_awake() -> None:
    done = fuzzer("--sanitize", "--read-too-far")
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
