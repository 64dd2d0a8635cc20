"""What other systems hear of runs: OpenTelemetry spans, Sentry errors and cron monitors, HTTP pings, ids in logs.

All of it is off the path of correctness: a hook that fails is logged and changes nothing for ticks and runs.
"""

from oncron.tracing._log import RunIds
from oncron.tracing._opentelemetry import trace
from oncron.tracing._pings import pings
from oncron.tracing._sentry import sentry

__all__ = ["RunIds", "pings", "sentry", "trace"]
