"""A sheet to draw on: shapes and words, in the colours of all pictures, written as SVG."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

INK, MUTED, FAINT, GOOD, BAD, WARN = "#1f2937", "#6b7280", "#d1d5db", "#00796b", "#c62828", "#b26a00"
GROUND, BAND = "#fafafa", "#eceff1"
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


class Paper:
    """`says` is what somebody is told who does not see it."""

    def __init__(self, width: int, height: int, title: str, says: str) -> None:
        self.width, self.height, self.title, self.says = width, height, title, says
        self._parts: list[str] = []

    def _put(self, tag: str, body: str = "", **given: object) -> None:
        words = " ".join(
            f"{name.strip('_').replace('_', '-')}={quoteattr(str(value))}" for name, value in given.items()
        )
        self._parts.append(f"<{tag} {words}>{body}</{tag}>" if body else f"<{tag} {words}/>")

    def begin(self, **given: object) -> None:
        words = " ".join(
            f"{name.strip('_').replace('_', '-')}={quoteattr(str(value))}" for name, value in given.items()
        )
        self._parts.append(f"<g {words}>")

    def end(self) -> None:
        self._parts.append("</g>")

    def text(
        self, x: float, y: float, words: str, *, colour: str = INK, size: float = 13, anchor: str = "start",
        mono: bool = False, bold: bool = False, **more: object,
    ) -> None:  # fmt: skip
        self._put(
            "text", escape(words), x=round(x, 1), y=round(y, 1), fill=colour, font_size=size, text_anchor=anchor,
            font_family=MONO if mono else SANS, font_weight="bold" if bold else "normal", **more,
        )  # fmt: skip

    def line(
        self, x: float, y: float, to_x: float, to_y: float, *, colour: str = INK, width: float = 1.5, dash: str = ""
    ) -> None:
        dashed = {"stroke_dasharray": dash} if dash else {}
        self._put(
            "line", x1=round(x, 1), y1=round(y, 1), x2=round(to_x, 1), y2=round(to_y, 1), stroke=colour,
            stroke_width=width, **dashed,
        )  # fmt: skip

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, colour: str = INK, dash: str = "") -> None:
        """Horizontal or vertical."""
        self.line(x, y, to_x, to_y, colour=colour, dash=dash)
        across, along = (0, 1 if to_y > y else -1) if x == to_x else (1 if to_x > x else -1, 0)
        sides = [(to_x - 8 * across + 4 * side * along, to_y - 8 * along + 4 * side * across) for side in (-1, 1)]
        head = [(to_x, to_y), *sides]
        self._put("polygon", points=" ".join(f"{a:g},{b:g}" for a, b in head), fill=colour)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, stroke: str = "none", round_: float = 4
    ) -> None:
        self._put(
            "rect", x=round(x, 1), y=round(y, 1), width=round(width, 1), height=round(height, 1), fill=fill,
            stroke=stroke, rx=round_,
        )  # fmt: skip

    def dot(self, x: float, y: float, *, colour: str = GOOD, radius: float = 5, **more: object) -> None:
        self._put("circle", cx=round(x, 1), cy=round(y, 1), r=radius, fill=colour, **more)

    def cross(self, x: float, y: float, *, colour: str = BAD, size: float = 6) -> None:
        self.line(x - size, y - size, x + size, y + size, colour=colour, width=2.5)
        self.line(x - size, y + size, x + size, y - size, colour=colour, width=2.5)

    def write(self, file: Path) -> None:
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(self.title)}</title>",
            f"<desc>{escape(self.says)}</desc>",
            f'<rect width="{self.width}" height="{self.height}" fill="{GROUND}" rx="6"/>',
            *self._parts,
            "</svg>",
        ]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
