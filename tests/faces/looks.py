"""What may be wrong with a page, asked of the browser that shows it."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.async_api import ConsoleMessage, Page, Request

_NAMED = {
    "button", "link", "textbox", "searchbox", "combobox", "checkbox", "listbox", "spinbutton", "image", "img", "dialog",
    "navigation", "region", "group", "alertdialog", "progressbar", "progressIndicator",
}  # fmt: skip
_EXPECTED = "Failed to load resource: the server responded with a status of"
"""What the browser notes of every 404 and 503, which tests cause on purpose."""


class Watch:
    """Hears what a page complains of, and where it asks."""

    def __init__(self, page: Page) -> None:
        self.wrongs: list[str] = []
        self._page = page
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrongs.append(f"error: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        lost = "net::ERR_" in message.text
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED) and not lost:
            self.wrongs.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        asked, here = urlsplit(request.url), urlsplit(self._page.url)
        if asked.scheme != "data" and here.scheme == "http" and asked.netloc != here.netloc:
            self.wrongs.append(f"asked {request.url}")


async def nameless(page: Page) -> list[str]:
    """Controls, pictures and landmarks that assistive technology would find without a name."""
    session = await page.context.new_cdp_session(page)
    tree = await session.send("Accessibility.getFullAXTree")
    await session.detach()
    return [
        f"{node['role']['value']} {node.get('backendDOMNodeId')}"
        for node in tree["nodes"]
        if not node["ignored"] and node["role"]["value"] in _NAMED and not node.get("name", {}).get("value", "").strip()
    ]


OVERFLOWS = """() => {
  const wide = document.documentElement.scrollWidth;
  if (wide <= innerWidth) return null;
  const all = [...document.querySelectorAll("main *, header *")];
  const out = all.filter((e) => e.getBoundingClientRect().right > innerWidth + 1);
  return [wide, ...out.slice(0, 5).map((e) => `${e.tagName}.${e.className.baseVal ?? e.className}`)];
}"""
"""The page's width and some of what makes it so wide; null if it fits."""

SMALL_TARGETS = """(least) => [...document.querySelectorAll("button, input, select")]
  .filter((e) => !["hidden", "checkbox"].includes(e.type) && e.checkVisibility())
  .filter((e) => e.getBoundingClientRect().height < least)
  .map((e) => `${e.tagName} ${e.innerText || e.name}: ${e.getBoundingClientRect().height}`)"""
"""Controls that a finger would miss."""

CONTRASTS = """() => {
  const rgb = (said) => { const n = said.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) layers.push(rgb(getComputedStyle(at).backgroundColor));
    const page = rgb(getComputedStyle(document.body).backgroundColor);
    return layers.reverse().reduce((below, above) => over(above, below), page);
  };
  const light = ([r, g, b]) => {
    const part = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const pale = new Set();
  const look = (e, colour, least, what) => {
    const back = behind(e), found = ratio(over(colour, back), back);
    if (found < least) pale.add(`${what} ${e.tagName}.${e.getAttribute("class")} ${found.toFixed(2)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || !e.checkVisibility() || e.closest("title, desc, script, option") || e.disabled) continue;
    const style = getComputedStyle(e);
    look(e, rgb(e instanceof SVGElement ? style.fill : style.color), 4.5, "text");
  }
  const marks = "svg :is([class*='o-'], .late, .jump, .now, .across, [class^='h'])";
  for (const e of document.querySelectorAll(marks)) {
    if (e.tagName === "g" || e.matches(".cell, .span") || !e.checkVisibility()) continue;
    const style = getComputedStyle(e);
    const shown = e.matches(".line, .ring, .dots, .jump, .now, .across") ? style.stroke : style.fill;
    if (shown !== "none") look(e, rgb(shown), 3, "mark");
  }
  return [...pale].slice(0, 10);
}"""
"""Text with less than 4.5 : 1 and marks with less than 3 : 1 against what lies behind them (WCAG 1.4.3, 1.4.11)."""

BROKEN = """() => {
  let heard = 0;
  addEventListener("securitypolicyviolation", () => { window.complained = ++heard >= 2; });
  const main = document.body.appendChild(document.createElement("div"));
  main.innerHTML = `<h1>x</h1><p>pale</p><button></button><input><div>wide</div>
    <svg><rect class="o-failed" width="9" height="9"></rect></svg><img alt="x" src="https://elsewhere.example/x.png">
    <b style="color: red">x</b>`;
  const [pale, button, wide] = ["p", "button", "div"].map((name) => main.querySelector(name));
  pale.style.color = "#999";
  button.style.cssText = "height: 10px; min-height: 0; padding: 0";
  wide.style.width = "2000px";
  main.querySelector("rect").style.fill = "#f0f0f0";
}"""
"""Makes a page of everything that is looked for above."""
