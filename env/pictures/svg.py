"""What the pictures draw with: boxes, lines and text, in the colours and fonts of the course's figures. No package needed.

A picture has a paper of its own, white or dark as the reader's system is, so it can be read on any page.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

WIDTH = 760
FONTS = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Noto Sans, Arial, sans-serif"
# Those of crates/measure/src/plot/canvas.rs, where a test asks that each stands out on white and on black.
BLUE, ORANGE, GREEN, PINK, BRONZE, GREY = "#0072b2", "#d55e00", "#00946c", "#c4689a", "#8c7024", "#7f7f7f"
INK = "currentColor"
STYLE = "svg{color:#1a1a1a}.paper{fill:#fff}@media(prefers-color-scheme:dark){svg{color:#e8e8e8}.paper{fill:#1e1e1e}}"

Drawing = Callable[["Picture"], None]
PICTURES: dict[str, tuple[str, int, Drawing]] = {}


def picture(name: str, title: str, height: int) -> Callable[[Drawing], Drawing]:
    """Makes a function that draws the picture docs/pictures/NAME.svg; `title` is read out to who cannot see it."""

    def keep(draw: Drawing) -> Drawing:
        assert name not in PICTURES, name
        PICTURES[name] = (title, height, draw)
        return draw

    return keep


def render(name: str) -> str:
    """The picture as SVG text."""
    title, height, draw = PICTURES[name]
    page = Picture()
    draw(page)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head += f' role="img" aria-label="{escape(title)}" font-family="{FONTS}" font-size="14">'
    paper = f'<rect class="paper" width="{WIDTH}" height="{height}" rx="6"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *page.parts, "</svg>", ""])


def number(value: float) -> str:
    """At most one digit after the point: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


class Picture:
    """A sheet that is 760 pixels wide; x goes to the right, y down."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, at: str = "middle", size: int = 14, bold: bool = False) -> None:
        """One line, its middle at height y; `at` is start, middle or end."""
        more = ' font-weight="bold"' * bold + (f' font-size="{size}"' if size != 14 else "")
        place = f'x="{number(x)}" y="{number(y)}" dy="0.35em" text-anchor="{at}" fill="currentColor"{more}'
        self.parts.append(f"<text {place}>{escape(text, quote=False)}</text>")

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        color: str = GREY,
        text: str = "",
        fill: float = 0.25,
        dash: bool = False,
        size: int = 14,
    ) -> None:
        """A box, tinted as strongly as `fill` says, with a text of one or more lines in its middle."""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}" rx="3"'
        dashes = ' stroke-dasharray="5 4"' * dash
        self.parts.append(f'<rect {place} fill="{color}" fill-opacity="{fill}" stroke="{color}"{dashes}/>')
        lines = text.split("\n") if text else []
        for line, content in enumerate(lines):
            self.text(x + w / 2, y + h / 2 + (line - (len(lines) - 1) / 2) * (size + 4), content, size=size)

    def row(
        self,
        x: float,
        y: float,
        texts: list[str],
        w: float,
        h: float = 24,
        gap: float = 2,
        color: str | Callable[[int], str] = BLUE,
        size: int = 12,
    ) -> None:
        """Boxes of equal size beside each other; `color` may depend on the place."""
        for at, text in enumerate(texts):
            self.box(x + at * (w + gap), y, w, h, color(at) if callable(color) else color, text, size=size)

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = INK, dash: bool = False) -> None:
        """A straight line."""
        place = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        dashes = ' stroke-dasharray="5 4"' * dash
        self.parts.append(f'<line {place} stroke="{color}" stroke-width="1.5"{dashes}/>')

    def path(self, points: list[tuple[float, float]], color: str = BLUE, width: float = 2.5) -> None:
        """A line through points."""
        corners = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.parts.append(f'<polyline points="{corners}" fill="none" stroke="{color}" stroke-width="{number(width)}"/>')

    def dot(self, x: float, y: float, color: str = ORANGE, radius: float = 5) -> None:
        """A filled circle."""
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" fill="{color}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, color: str = INK, dash: bool = False) -> None:
        """A line with a head at its second end."""
        self.line(x1, y1, x2, y2, color, dash)
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1e-9)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        corners = [(x2, y2)] + [(x2 - 9 * ux + side * 4 * uy, y2 - 9 * uy - side * 4 * ux) for side in (1, -1)]
        points = " ".join(f"{number(x)},{number(y)}" for x, y in corners)
        self.parts.append(f'<polygon points="{points}" fill="{color}"/>')
