"""Plots as PNG have their letters, whatever fonts are installed."""

from __future__ import annotations

import struct
import zlib

import pytest
from env.run import redraw

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="40" font-family="{fonts}" font-size="20">'
    '<rect width="100%" height="100%" fill="#ffffff"/><text x="5" y="28">{text}</text></svg>'
)


def dark(png: bytes) -> int:
    """How many bytes of the picture's pixels are dark: those of letters, on white."""
    at, packed = 8, b""
    while at < len(png):
        length, kind = struct.unpack_from(">L4s", png, at)
        packed += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    width, height = struct.unpack_from(">2L", png, 16)
    lines, row, before = zlib.decompress(packed), 4 * width, bytes(4 * width)
    count = 0
    for y in range(height):
        method, line = lines[y * (row + 1)], bytearray(lines[y * (row + 1) + 1 : (y + 1) * (row + 1)])
        for x in range(row):
            left, up, corner = (line[x - 4] if x > 3 else 0), before[x], (before[x - 4] if x > 3 else 0)
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda one: abs(guess - one))
            line[x] = (line[x] + (0, left, up, (left + up) // 2, nearest)[method]) & 255
        count += sum(value < 100 for value in line)
        before = bytes(line)
    return count


@pytest.mark.skipif(redraw.fonts_missing(), reason="needs a font")
@pytest.mark.parametrize(
    "fonts", ["sans-serif", "monospace", "No Such Font, sans-serif", "system-ui, Arial, sans-serif"]
)
def test_a_picture_has_its_letters(fonts: str) -> None:
    drawn = redraw.png(SVG.format(fonts=fonts, text="Welcome"), "test")
    assert dark(drawn) > 1000
    assert dark(redraw.png(SVG.format(fonts=fonts, text=""), "test")) == 0


@pytest.mark.skipif(redraw.fonts_missing(), reason="needs a font")
def test_the_installed_family_is_named_to_the_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(redraw.families()) == {"sans_serif_family", "monospace_family"}
    # One that is not on the list, which fontconfig knows.
    redraw.families.cache_clear()
    monkeypatch.setattr(redraw, "font_files", lambda: [redraw.Path("Other.ttf")])
    monkeypatch.setattr(redraw.command, "output", lambda words: f"Other {words[-1]}")
    assert redraw.families() == {"sans_serif_family": "Other sans-serif", "monospace_family": "Other monospace"}
    monkeypatch.setattr(
        redraw, "font_files", lambda: [redraw.Path("NotoSans-Regular.ttf"), redraw.Path("Courier New.ttf")]
    )
    redraw.families.cache_clear()
    assert redraw.families() == {"sans_serif_family": "Noto Sans", "monospace_family": "Courier New"}
    redraw.families.cache_clear()
