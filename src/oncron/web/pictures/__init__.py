"""Pictures of schedules, as SVG that is drawn on the server: no script, no style of its own, no request.

Every picture says its facts in words as well (`<title>` and `<desc>`, and a `<title>` on each mark), tells outcomes
apart by shape and place and not by colour alone, and takes its colours from the page's style sheet by class, so that
dark mode needs no second picture. What names and reasons hold is shown as text. Many ticks are drawn together:
ten thousand stay below 150 kB.

The answers are whole `<svg>` elements, safe to be put into HTML. Two of one kind on a page need different `ident`s.
"""

from oncron.web.pictures.calendar import calendar
from oncron.web.pictures.coming import coming
from oncron.web.pictures.facts import Jump, Mark, Outcome, outcome_of_gap, outcome_of_state
from oncron.web.pictures.load import load_map
from oncron.web.pictures.plots import durations, latenesses
from oncron.web.pictures.timeline import timeline

__all__ = [
    "Jump",
    "Mark",
    "Outcome",
    "calendar",
    "coming",
    "durations",
    "latenesses",
    "load_map",
    "outcome_of_gap",
    "outcome_of_state",
    "timeline",
]
