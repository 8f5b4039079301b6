# SPDX-License-Identifier: Apache-2.0
"""Scripts and styles: a fixed table, read at the start. Their addresses change with their bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.console.http.answers import Text
from headrace.console.http.errors import not_found
from headrace.console.http.routes import NOBODY, Route

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

FOLDER = Path(__file__).parent / "assets"
SCRIPT, STYLE, IMAGE = "text/javascript; charset=utf-8", "text/css; charset=utf-8", "image/svg+xml"
FILES = {
    "console.css": STYLE,
    "console.js": SCRIPT,
    "charts.js": SCRIPT,
    "icon.svg": IMAGE,
    "vendor/idiomorph.min.js": SCRIPT,
    "vendor/uPlot.iife.min.js": SCRIPT,
    "vendor/uPlot.min.css": STYLE,
}
DIGITS = 16  # Of the hash in an address.
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages load."""

    address: str
    body: bytes
    content_type: str


def load() -> dict[str, Asset]:
    """Return the assets by their names."""
    found = {}
    for name, content_type in FILES.items():
        body = (FOLDER / name).read_bytes()
        stem, _, suffix = name.rpartition("/")[2].rpartition(".")
        mark = hashlib.sha256(body).hexdigest()[:DIGITS]
        found[name] = Asset(f"/assets/{stem}.{mark}.{suffix}", body, content_type)
    return found


ASSETS = load()
BY_ADDRESS = {one.address.rpartition("/")[2]: one for one in ASSETS.values()}


def address_of(name: str) -> str:
    """Return the address of an asset."""
    return ASSETS[name].address


async def show(call: HttpCall) -> object:
    """Return an asset; it is the same for everyone."""
    asset = BY_ADDRESS.get(call.path["name"])
    if asset is None:
        raise not_found()
    return Text(asset.body, asset.content_type, headers=FOREVER)


ROUTES = (
    Route(
        "GET",
        "/assets/{name}",
        show,
        NOBODY,
        "",
        "A script or style of the pages.",
        page=True,
        is_free=True,
    ),
)
