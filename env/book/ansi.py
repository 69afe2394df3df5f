"""What programs print with colours of a terminal, in colours that are legible on light and on dark pages."""

from __future__ import annotations

import colorsys
import re

from nbconvert.filters import ansi2html

FIXED = re.compile(r'style="color: rgb\((\d+),(\d+),(\d+)\)"')
SAME = re.compile(r"(<span [^>]*>)([^<]*)</span>(?:\1([^<]*)</span>)+")
SPAN = re.compile(r"<span [^>]*>([^<]*)</span>")


def _themed(match: re.Match[str]) -> str:
    """The hue stays; how light it is, the page decides."""
    red, green, blue = (int(part) / 255 for part in match.groups())
    hue, _, strength = colorsys.rgb_to_hls(red, green, blue)
    if strength < 0.1:
        return 'class="ansi-faint"'
    return f'style="color:hsl({hue * 360:.0f} 75% var(--ink-light))"'


def _joined(match: re.Match[str]) -> str:
    return f"{match[1]}{''.join(SPAN.findall(match[0]))}</span>"


def to_html(text: str) -> str:
    """Escaped text with spans for its colours. The Rust kernel colours each letter alone: equal neighbours are joined."""
    return SAME.sub(_joined, FIXED.sub(_themed, ansi2html(text)))
