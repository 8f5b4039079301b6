# SPDX-License-Identifier: Apache-2.0
"""What tests drive is all there on the distributions that the project is proven on."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.browser import find_chromium
from support.clients.client_programs import BROUGHT, ROOT, bring

if TYPE_CHECKING:
    import peers
else:  # A folder of scripts is no place to import from: one of them is named as a module of Python.
    spec = importlib.util.spec_from_file_location("peers", ROOT / "tools" / "peers.py")
    peers = sys.modules["peers"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peers)

# Each peer that a distribution lacks. A row is added when a new one is tried: tools/fresh.sh.
ABSENT: dict[str, set[str]] = {"Debian 12": set(), "Debian 13": {"py-amqplib"}}
PROGRAMS = (
    *("amqp-publish", "tshark", "node", "npm", "perl", "git", "openssl", "java", "ps"),
    *("systemd-analyze", "chromedriver"),
)

here = peers.distribution()
proven = pytest.mark.skipif(here not in ABSENT, reason=f"{here} has no list of what must be there")


@proven
def test_all_peers_but_those_that_the_distribution_lacks_are_there() -> None:
    bring(*[BROUGHT / peer.name for peer in peers.PEERS if peer.name not in ABSENT[here]])
    assert set(json.loads(peers.ABSENT.read_text())) == ABSENT[here]


@proven
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_there(program: str) -> None:
    assert shutil.which(program)


@proven
def test_a_browser_and_postgresql_are_there() -> None:
    assert find_chromium()
    assert list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


# --- The cache ----------------------------------------------------------------------------------


class Letters:
    """A peer of two files; the second may fail."""

    name = what = "letters"

    def __init__(self, text: str = "one", fails: bool = False) -> None:
        self.text, self.fails, self.made = text, fails, 0

    def __repr__(self) -> str:
        return "Letters"

    def contents(self) -> list[str]:
        return [self.text]

    def make(self, folder: Path, contents: list[str]) -> None:
        self.made += 1
        (folder / "a").write_text(self.text)
        if self.fails:
            raise peers.PeerFailed("half a file came")
        (folder / "b").write_text(self.text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of peers of a checkout, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, path in (("FOLDER", ""), ("ABSENT", "absent.json"), ("CURRENT", "current")):
        monkeypatch.setattr(peers, name, tmp_path / "interop" / path)
    peers.FOLDER.mkdir()
    return peers.FOLDER


def test_a_second_checkout_has_what_the_first_one_brought(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Letters()
    peers.bring(peer, peers.cache())
    monkeypatch.setattr(peers, "FOLDER", tmp_path / "second")
    peers.FOLDER.mkdir()
    peers.bring(peer, peers.cache())
    assert peer.made == 1
    assert (tmp_path / "second" / "letters" / "b").read_text() == "one"


def test_another_version_has_another_folder(folder: Path) -> None:
    for text in ("one", "two"):
        peers.bring(Letters(text), peers.cache())
        assert (folder / "letters" / "b").read_text() == text
    assert len(list(peers.cache().glob("letters-*.done"))) == 2


def test_what_came_by_half_is_not_taken_for_whole(folder: Path) -> None:
    with pytest.raises(peers.PeerFailed, match="half a file"):
        peers.bring(Letters(fails=True), peers.cache())
    assert not (folder / "letters").exists()
    killed = peers.peer_folder(Letters(), ["one"], peers.cache())
    killed.mkdir()  # As a run leaves it that was killed.
    (killed / "a").write_text("half")
    peers.bring(Letters(), peers.cache())
    assert (folder / "letters" / "a").read_text() == "one"


def test_a_home_that_may_not_be_written_is_no_obstacle(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert peers.cache() == folder / "cache"


def test_a_peer_that_the_distribution_lacks_is_named_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = peers.Packages("nothing", "a client of nothing", ("headrace-no-such-package",))
    monkeypatch.setattr(peers, "PEERS", (lacking,))
    assert peers.main() == 0
    reason = f"a client of nothing: {here} has no package headrace-no-such-package"
    assert peers.absent() == {"nothing": reason}
    assert f"not tried here: {reason}\n" in capsys.readouterr().out


def test_a_source_package_with_another_digest_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_source", lambda name, version: b"another")
    package = peers.SourcePackage("old", "a client", "1", hashlib.sha256(b"it").hexdigest())
    with pytest.raises(peers.PeerFailed, match="old 1 is not the file that it was"):
        peers.bring(package, peers.cache())
    assert not (folder / "old").exists()


def test_a_download_that_fails_is_tried_once_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def fail(name: str, version: str) -> bytes:
        tries.append(name)
        raise OSError("connection reset")

    monkeypatch.setattr(peers, "_source", fail)
    with pytest.raises(peers.PeerFailed, match="old 1: connection reset"):
        peers.bring(peers.SourcePackage("old", "a client", "1", ""), peers.cache())
    assert tries == ["old", "old"]
