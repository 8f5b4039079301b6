# SPDX-License-Identifier: Apache-2.0
"""The drawings are what their descriptions say, and are pictures that any viewer reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from headrace.protocol.v0_x.handshake import HANDSHAKE

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"


def test_drawings_are_in_step_with_their_descriptions() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "draw.py", "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def words_of(image: Path) -> set[str]:
    """Return the words that a drawing shows."""
    texts = ET.parse(image).getroot().iter("{http://www.w3.org/2000/svg}text")
    return {word for text in texts for word in (text.text or "").split()}


def test_no_drawing_loads_anything() -> None:
    for image in IMAGES.glob("*.svg"):
        assert "href" not in image.read_text()


def test_the_opening_is_drawn_from_the_table() -> None:
    words = words_of(IMAGES / "opening.svg")
    for state, moves in HANDSHAKE.items():
        for (role, method), following in moves.items():
            assert {state.name, following.name, f"{role.value}:", method} <= words
    assert "(0-10)" not in words, "the tables of 0-8 to 0-9-1 and of 0-10 agree"


def test_a_drawing_shows_every_word() -> None:
    sources = sorted(IMAGES.glob("*.seq"))
    assert len(sources) == 4
    for source in sources:
        words = words_of(source.with_suffix(".svg"))
        for line in source.read_text().splitlines():
            said = line.partition(": ")[2] or line.partition(" ")[2]
            assert set(said.split()) <= words, line
