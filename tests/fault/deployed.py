"""What replicas of a changing release execute: `oncron run tests.fault.deployed:app`.

FAULT_DECLARES   the schedules as JSON: {name: [milliseconds between ticks, retries]}
"""

from __future__ import annotations

import json
import os

from oncron import every

if os.environ["FAULT_MUTANT"]:
    from tests.fault.mutants import app
else:
    from tests.fault.app import app
from tests.fault.app import declare, work

for name, (milliseconds, retries) in json.loads(os.environ["FAULT_DECLARES"]).items():
    declare(name, every(seconds=milliseconds / 1000), work, retries)

__all__ = ["app"]
