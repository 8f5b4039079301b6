# SPDX-License-Identifier: Apache-2.0
"""The drawings are what their descriptions say, and are pictures that any viewer reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"


def test_drawings_are_in_step_with_their_descriptions() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "draw.py", "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_drawing_shows_every_word_and_loads_nothing() -> None:
    sources = sorted(IMAGES.glob("*.seq"))
    assert len(sources) == 4
    for source in sources:
        root = ET.parse(source.with_suffix(".svg")).getroot()
        shown = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
        words = {word for line in shown for word in (line or "").split()}
        for line in source.read_text().splitlines():
            said = line.partition(": ")[2] or line.partition(" ")[2]
            assert set(said.split()) <= words, line
        assert "href" not in source.with_suffix(".svg").read_text()
