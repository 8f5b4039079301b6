# SPDX-License-Identifier: Apache-2.0
"""Scripts and styles, read when the console starts; an address changes with the file's bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.console.http.answers import Text
from headrace.console.http.routes import NOBODY, Routes
from headrace.console.http_errors import not_found

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
DIGITS = 16  # Digits of the hash in an address.
ROUTES = Routes()
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages load."""

    address: str
    body: bytes
    content_type: str


def load() -> dict[str, Asset]:
    """Return the assets by their names."""
    assets = {}
    for name, content_type in FILES.items():
        body = (FOLDER / name).read_bytes()
        stem, _, suffix = name.rpartition("/")[2].rpartition(".")
        digest = hashlib.sha256(body).hexdigest()[:DIGITS]
        assets[name] = Asset(f"/assets/{stem}.{digest}.{suffix}", body, content_type)
    return assets


ASSETS = load()
BY_ADDRESS = {asset.address.rpartition("/")[2]: asset for asset in ASSETS.values()}


def address_of(name: str) -> str:
    """Return the address of an asset."""
    return ASSETS[name].address


@ROUTES.get(
    {"/assets/{name}": "A script or style of the pages."}, tag=NOBODY, page=True, is_free=True
)
async def show(call: HttpCall, name: str) -> Text:
    """Return an asset; it is the same for all users."""
    asset = BY_ADDRESS.get(name)
    if asset is None:
        raise not_found()
    return Text(asset.body, asset.content_type, headers=FOREVER)
