// Keeps an open page up to date. Without it every page and button works as well.
"use strict";

(() => {
  const body = document.body;
  const up = body.dataset.up || "";
  const live = document.getElementById("live");
  const trouble = document.getElementById("trouble");
  let seen = body.dataset.mark || "";
  let shown = "";
  let wanted = false;
  let fetching = false;
  let lastFetch = 0;
  let source = null;
  const FETCH_EVERY = 2000;

  if (!live) return;

  const main = () => document.getElementById("main");

  // On a phone the menu is wider than the screen.
  document.querySelector(".top [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

  // --- how long ago -----------------------------------------------------------------------

  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let offset = Number(main().dataset.now) - Date.now();

  const span = (seconds) => {
    let left = Math.floor(seconds);
    const parts = [];
    for (const [size, unit] of UNITS) {
      const amount = Math.floor(left / size);
      left -= amount * size;
      if (amount || parts.length) parts.push(amount ? `${amount} ${unit}` : "");
    }
    return parts.slice(0, 2).filter(Boolean).join(" ") || "0 s";
  };

  const tell = () => {
    const now = Date.now() + offset;
    for (const time of document.querySelectorAll("time[data-at]")) {
      const away = (Number(time.dataset.at) - now) / 1000;
      if (Math.abs(away) < 10) continue;
      const text = away > 0 ? `in ${span(away)}` : `${span(-away)} ago`;
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // --- fetching the page again ------------------------------------------------------------

  // Nobody's typing, open form or selected text is swept away.
  const busy = () => {
    const at = document.activeElement;
    if (at && main().contains(at) && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName)) return true;
    if (main().querySelector("dialog:popover-open")) return true;
    const chosen = document.getSelection();
    return Boolean(chosen && !chosen.isCollapsed && main().contains(chosen.anchorNode));
  };

  const say = (text, bad) => {
    live.textContent = text;
    live.classList.toggle("bad", Boolean(bad));
    live.classList.toggle("on", !bad);
  };

  const alarm = (why) => {
    trouble.textContent = why;
    trouble.hidden = !why;
  };

  const place = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (!fresh) return;
    offset = Number(fresh.dataset.now) - Date.now();
    const focused = document.activeElement && main().contains(document.activeElement) ? trail(document.activeElement) : null;
    main().replaceChildren(...fresh.childNodes);
    main().dataset.now = fresh.dataset.now;
    if (focused) main().querySelector(focused)?.focus({ preventScroll: true });
    tell();
  };

  // A selector that finds the same element in the fresh part.
  const trail = (element) => {
    const steps = [];
    for (let at = element; at && at !== main(); at = at.parentElement) {
      if (at.id) {
        steps.unshift(`#${CSS.escape(at.id)}`);
        break;
      }
      steps.unshift(`${at.tagName.toLowerCase()}:nth-child(${Array.prototype.indexOf.call(at.parentElement.children, at) + 1})`);
    }
    return steps.join(" > ");
  };

  const refresh = async () => {
    wanted = true;
    if (fetching || document.hidden || busy()) return;
    const wait = lastFetch + FETCH_EVERY - Date.now();
    if (wait > 0) return;
    fetching = true;
    wanted = false;
    lastFetch = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { "X-Oncron-Part": "main" }, credentials: "same-origin" });
      const text = await answer.text();
      if (answer.ok) {
        if (text !== shown) place(text);
        shown = text;
        alarm("");
      } else if (answer.status === 503) {
        wanted = true;
        alarm("The store does not answer. What is shown is as it was; this page tries again by itself.");
      } else if (answer.status === 401 || answer.status === 404) {
        location.reload();
      }
    } catch {
      wanted = true;
      alarm("The dashboard does not answer. What is shown is as it was; this page tries again by itself.");
    } finally {
      fetching = false;
    }
  };

  // --- hearing of changes -----------------------------------------------------------------

  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource(`${up}events`);
    source.addEventListener("mark", (event) => {
      const { mark } = JSON.parse(event.data);
      say("live");
      alarm("");
      if (document.getElementById("again")) return location.reload();
      if (mark !== seen) {
        seen = mark;
        refresh();
      }
    });
    source.addEventListener("trouble", (event) => {
      const { why } = JSON.parse(event.data);
      seen = "";
      say("not live", true);
      // A page that could not be shown says so itself.
      if (!document.getElementById("again")) {
        alarm(`The store does not answer: ${why}. What is shown is as it was; this page is back by itself.`);
      }
    });
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) leave();
      // Streams end after a while and are taken up again: that is no trouble unless it lasts.
      setTimeout(() => {
        if (!source || source.readyState !== EventSource.OPEN) say("not live", true);
      }, 3000);
    });
  };

  const leave = () => {
    if (source) source.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return leave();
    listen();
    refresh();
  });
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", listen);

  const every = Number(main().dataset.every || 0) * 1000;
  setInterval(() => {
    tell();
    if (document.hidden) return;
    if (!source) listen();
    if (wanted || (every && Date.now() - lastFetch > every)) refresh();
  }, 1000);

  // One wish is one click.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    for (const button of event.target.querySelectorAll("button")) button.disabled = true;
  });

  listen();
})();
