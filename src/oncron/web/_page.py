"""What one request asks for, and the pages that answer it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from oncron import _options as check, _shown as shown
from oncron._app import Oncron
from oncron._cipher import is_encrypted
from oncron._json import loads
from oncron.errors import InvalidOption
from oncron.web._coming_load import LoadKept
from oncron.web._live import Live
from oncron.web._reading import Reading

PART = "x-oncron-part"
"""A page that is open asks for its changing part only, by this header."""
_MOST_TEXT = 500


class Pages:
    """The templates, and what all of them need."""

    def __init__(self, reading: Reading, live: Live, *, read_only: bool, title: str) -> None:
        self.reading, self.live, self.read_only, self.title = reading, live, read_only, title
        self.load = LoadKept(reading)
        self.environment = Environment(
            loader=PackageLoader("oncron.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        filters: dict[str, Any] = {
            "away": shown.away, "moment": moment, "span": shown.span, "utc": shown.utc, "iso": shown.iso,
            "count": shown.count, "json_text": json_text, "link": link,
        }  # fmt: skip
        loose: Any = self.environment  # these two are typed as dicts of nothing known
        loose.filters.update(filters)
        loose.globals.update({"link": link})


@dataclass
class Asked:
    """One request."""

    pages: Pages
    request: Request
    path: str
    csrf: str
    user: str = ""
    admitted: bool = False
    """Whether it was asked who this is: before, nothing of the store is shown."""
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of a POST."""
    shows_forms: bool = False

    @property
    def reading(self) -> Reading:
        return self.pages.reading

    @property
    def app(self) -> Oncron:
        return self.pages.reading.app

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")

    # --- what it asks -----------------------------------------------------------------

    def text(self, name: str) -> str | None:
        """A field of the query, None if it is absent or empty. Raises InvalidOption."""
        value = self.request.query_params.get(name)
        return check.line(value, name) if value else None

    def number(self, name: str, default: int, *, most: int) -> int:
        """Raises InvalidOption."""
        value = self.text(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit()) or not 1 <= int(value[:10]) <= most:
            raise InvalidOption(f"{name}={check.shown(value)}: give a whole number from 1 to {most}")
        return int(value)

    def needed(self, name: str) -> str:
        """Of a POST's fields, else of the query. Raises InvalidOption."""
        value = self.given.get(name, self.request.query_params.get(name))
        if not isinstance(value, str) or not value:
            raise InvalidOption(f"{name} is missing: say which")
        return check.line(value, name)

    def optional(self, name: str) -> str:
        """Of a POST's fields; "" if it is not there. Raises InvalidOption."""
        value = self.given.get(name, "")
        if not isinstance(value, str) or len(value) > _MOST_TEXT:
            raise InvalidOption(f"{name}: give a text of at most {_MOST_TEXT} characters")
        return check.line(value, name)

    # --- answers ----------------------------------------------------------------------

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """HTML; of an open page that asks again only the part that changes."""
        self.shows_forms = self.admitted and not self.pages.read_only
        part = PART in self.request.headers
        text = self.pages.environment.get_template(template).render(
            layout="part.html" if part else "page.html",
            up="../" * (self.path.count("/") - 1),
            here=self.path.strip("/").split("/")[0],
            query=_Query(self.request.query_params),
            address=self.path.strip("/") + (f"?{self.request.url.query}" if self.request.url.query else ""),
            csrf=self.csrf,
            user=self.user,
            admitted=self.admitted,
            now=self.reading.now_us,
            title=self.pages.title,
            store=self.reading.url if self.admitted else "",
            read_only=self.pages.read_only,
            mark=self.pages.live.mark,
            **values,
        )
        return HTMLResponse(text.encode(errors="replace"), status, {"vary": PART})

    def error(self, status: int, sentence: str) -> Response:
        if sentence.partition(" ")[0].isalpha():  # an address stays as it is
            sentence = sentence[:1].upper() + sentence[1:]
        if self.is_api:
            return JSONResponse({"status": status, "error": sentence}, status)
        return self.page("error.html", status=status, code=status, sentence=sentence)


def moment(instant: int) -> str:
    """For people: in UTC, to the millisecond where it is not a whole second."""
    return shown.utc(instant - instant % 1000)


class _Query(dict[str, str]):
    """What is not asked is "" to a template, and stays unasked."""

    def __missing__(self, name: str) -> str:
        return ""


def link(page: str, **query: Any) -> str:
    """A relative address; what is None or "" is left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{page}?{urlencode(given, quote_via=quote)}" if given else page


def json_text(text: str | None) -> str:
    """A stored JSON text for people; of one that no key here opens only that it is encrypted."""
    if text is None:
        return ""
    if is_encrypted(text):
        return "encrypted"
    try:
        return json.dumps(loads(text), indent=2, ensure_ascii=False)
    except (ValueError, TypeError):
        return text
