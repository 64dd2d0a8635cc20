"""Elements of SVG as text. Everything that is not a number is escaped here, and nowhere else."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

_SHOWN = 300
"""Characters of a text on a mark."""


def element(name: str, *inside: str, **attributes: float | str | None) -> str:
    """`<name a="b">inside</name>`. `inside` is markup already; attributes are not. `class_` is `class`,
    `text_anchor` is `text-anchor`; None leaves an attribute out."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = value if isinstance(value, str) else number(value)
            parts.append(f"{key.rstrip('_').replace('_', '-')}={quoteattr(words(shown))}")
    return f"<{' '.join(parts)}>{''.join(inside)}</{name}>" if inside else f"<{' '.join(parts)}/>"


def text(x: float, y: float, said: str, *, class_: str | None = None, anchor: str | None = None) -> str:
    return element("text", escape(words(said)), x=x, y=y, class_=class_, text_anchor=anchor)


def tooltip(said: str) -> str:
    """What a mark says when it is pointed at."""
    said = words(said)
    return f"<title>{escape(said if len(said) <= _SHOWN else said[: _SHOWN - 1] + '…')}</title>"


def linked(href: str, drawn: str) -> str:
    """A mark that leads somewhere. The keyboard leaves it out: it goes by the table beside the picture."""
    return element("a", drawn, href=href, tabindex="-1") if href else drawn


def picture(kind: str, width: float, height: float, *, title: str, desc: str, inside: Iterable[str], ident: str) -> str:
    """The whole: an image with a name and its facts in words, as wide as there is room."""
    name, facts = f"{ident}-title", f"{ident}-desc"
    return element(
        "svg",
        f"<title id={quoteattr(name)}>{escape(words(title))}</title>",
        f"<desc id={quoteattr(facts)}>{escape(words(desc))}</desc>",
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        class_=f"picture-svg {kind}",
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_labelledby=name,
        aria_describedby=facts,
        focusable="false",
    )


def number(value: float) -> str:
    """With a tenth at most: nobody sees more."""
    return f"{round(value, 1):g}" if abs(value) < 100_000 else str(round(value))


def words(said: str) -> str:
    """Text without what XML cannot hold, nor what turns the direction of the text around it."""
    if said.isascii() and said.isprintable():
        return said
    return "".join(" " if c in "\t\r\n" else c if _is_shown(c) else "�" for c in said)


def _is_shown(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cs", "Cn", "Cf", "Co") or char in "\u200c\u200d"
