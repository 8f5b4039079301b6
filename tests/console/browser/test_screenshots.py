# SPDX-License-Identifier: Apache-2.0
"""The screenshots of the guide, taken of a broker with traffic: each shows its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from support.browser import find_chromium
from support.console_shots import HEIGHTS, SHOTS, busy_console, take

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "docs/images/console"
COLOURS_MIN = 60  # A page that did not come has some ten.


def test_the_screenshots_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At three widths, light and dark; the guide shows those that the tool took the same way."""
    if find_chromium() is None:
        pytest.skip("there is no Chromium; `make peers` installs it")
    monkeypatch.chdir(tmp_path)
    home, folder = tmp_path / "home", tmp_path / "shots"
    home.mkdir()
    folder.mkdir()
    with busy_console(home) as browser:
        found = list(take(browser, folder))
    assert len(found) == sum(len(looks) for _, _, looks in SHOTS)
    for file in found:
        width, theme = int(file.stem.split("-")[-2]), file.stem.split("-")[-1]
        with Image.open(file) as image:
            assert image.size == (width, HEIGHTS[width])
            pixels = image.convert("RGB")
        colours = pixels.getcolors(1 << 24)
        assert colours is not None
        assert len(colours) > COLOURS_MIN, file.name
        most = max(colours)[1]
        assert isinstance(most, tuple)
        assert (sum(most) < 3 * 128) is (theme == "dark"), file.name
    assert {file.name for file in found} == {file.name for file in IMAGES.iterdir()}
    looks = {look for name, _, looks in SHOTS if name == "overview" for look in looks}
    assert looks == {(width, theme) for width in HEIGHTS for theme in ("light", "dark")}
    text = (ROOT / "docs/guides/console.md").read_text()
    assert [file.name for file in found if f"console/{file.name}" not in text] == []
