"""Values drawn from a schedule's name: what `H` and `between=` stand for.

A draw is a function of the name (and a label) alone, so every replica draws the same.
The digest and the way a number is taken from it are frozen: changing them would move the
ticks of stored schedules.
"""

from __future__ import annotations

import hashlib
import re

from oncron.triggers.fields import FieldKind, FieldRefused

_HASHED = re.compile(r"H(?:\((\d{1,3})-(\d{1,3})\))?(?:/(\d{1,3}))?", re.IGNORECASE)


def seed_of(schedule: str) -> str:
    """Sixteen hexadecimal digits that stand for a schedule's name in stored text."""
    return hashlib.blake2b(schedule.encode("utf-8", "surrogatepass"), digest_size=8, person=b"oncron-seed").hexdigest()


def draw(seed: str, label: str, below: int) -> int:
    """A number in [0, below), the same for the same seed and label for ever."""
    digest = hashlib.blake2b(f"{seed}/{label}".encode(), digest_size=8, person=b"oncron-draw").digest()
    return int.from_bytes(digest, "big") % below


def is_hashed(text: str) -> bool:
    """Whether a field's text holds an `H` that only a schedule's name can resolve."""
    return any(item[:1] in {"H", "h"} for item in text.split(","))


def resolve(kind: FieldKind, text: str, seed: str) -> str:
    """The field's text with each `H` replaced by numbers drawn from the seed.

    `H` is one value, `H(a-b)` one within the range, `H/n` every n from a drawn start, and
    `H(a-b)/n` that within the range. Raises FieldRefused for another form.
    """
    return ",".join(_resolve_item(kind, item, seed) for item in text.split(","))


def _resolve_item(kind: FieldKind, item: str, seed: str) -> str:
    if item[:1] not in {"H", "h"}:
        return item
    match = _HASHED.fullmatch(item)
    if match is None:
        raise FieldRefused(f"{item[:20]!r}: H is written H, H(a-b) or H/n", "write H, H(0-29) or H/15")
    ranged, step = match[1] is not None, match[3]
    low = int(match[1]) if ranged else kind.low
    high = int(match[2]) if ranged else kind.hash_high
    if not kind.low <= low <= high <= kind.high:
        mend = f"give a range within {kind.low}-{kind.high}"
        raise FieldRefused(f"{item!r}: {low}-{high} is no range of the {kind.name}", mend)
    size = high - low + 1
    if step is None:
        return str(low + draw(seed, kind.name, size))
    if int(step) == 0:
        raise FieldRefused(f"the step of {item!r} is zero", "a step is 1 or more")
    start = low + draw(seed, kind.name, min(int(step), size))
    return f"{start}-{high}/{step}"
