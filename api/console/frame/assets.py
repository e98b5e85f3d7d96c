"""Files of the pages: style, script and fonts, each under a name with its content's digest, so that caches keep it."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from api.console.frame.addresses import address

_FOLDER: Final = files("api.console") / "static"
TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "woff2": "font/woff2"}
NAMES: Final = (
    "console.css",
    "live.js",
    "verify.js",
    "inter-greek-wght-normal.woff2",
    "inter-latin-wght-normal.woff2",
)
_STYLE: Final = "console.css"
_DIGEST_LENGTH: Final = 16


def asset(name: str) -> str:
    """The address of a file by its name. Raises: KeyError."""
    return address("static", _names_with_digest()[name])


def read_asset(named: str) -> tuple[bytes, str] | None:
    """A file by its name with the digest, and its media type; None if there is none."""
    known = next((name for name, whole in _names_with_digest().items() if whole == named), None)
    return None if known is None else (content(known), TYPES[known.rpartition(".")[2]])


@cache
def _names_with_digest() -> dict[str, str]:
    names = {}
    for name in NAMES:
        stem, _, ending = name.rpartition(".")
        names[name] = f"{stem}.{sha256(content(name)).hexdigest()[:_DIGEST_LENGTH]}.{ending}"
    return names


@cache
def content(name: str) -> bytes:
    """The bytes of a file as they are sent; the style names the fonts by their digests."""
    data = (_FOLDER / name).read_bytes()
    if name == _STYLE:
        for font in NAMES:
            if font.endswith(".woff2"):
                digest = sha256((_FOLDER / font).read_bytes()).hexdigest()[:_DIGEST_LENGTH]
                data = data.replace(font.encode(), f"{font.removesuffix('.woff2')}.{digest}.woff2".encode())
    return data


@cache
def inline_style() -> str:
    """The style with the fonts in it, for a page that stands alone."""
    style = (_FOLDER / _STYLE).read_text("utf-8")
    for font in NAMES:
        if font.endswith(".woff2"):
            data = b64encode((_FOLDER / font).read_bytes()).decode()
            style = style.replace(f'url("{font}")', f'url("data:font/woff2;base64,{data}")')
    return style
