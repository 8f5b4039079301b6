# SPDX-License-Identifier: Apache-2.0
"""Scripts and styles of the pages, read when the console starts.

The address of a file contains a hash of its bytes, so that browsers may cache it for ever.
"""

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
HASH_DIGITS = 16  # Hexadecimal digits of the hash in an address.
ROUTES = Routes()
CACHED_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A script, style or image of the pages."""

    address: str
    body: bytes
    content_type: str


def load_assets() -> dict[str, Asset]:
    """Return the assets by their names in :data:`FILES`."""
    assets = {}
    for name, content_type in FILES.items():
        body = (FOLDER / name).read_bytes()
        stem, _, suffix = name.rpartition("/")[2].rpartition(".")
        digest = hashlib.sha256(body).hexdigest()[:HASH_DIGITS]
        assets[name] = Asset(f"/assets/{stem}.{digest}.{suffix}", body, content_type)
    return assets


ASSETS = load_assets()
ASSETS_BY_HASHED_NAME = {asset.address.rpartition("/")[2]: asset for asset in ASSETS.values()}


def asset_address(name: str) -> str:
    """Return the address of an asset by its name in :data:`FILES`."""
    return ASSETS[name].address


@ROUTES.get(
    {"/assets/{name}": "A script or style of the pages."}, tag=NOBODY, page=True, is_free=True
)
async def show_asset(call: HttpCall, name: str) -> Text:
    """Return the asset whose address ends with ``name``."""
    asset = ASSETS_BY_HASHED_NAME.get(name)
    if asset is None:
        raise not_found()
    return Text(asset.body, asset.content_type, headers=CACHED_FOREVER)
