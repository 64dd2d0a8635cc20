"""A test kit for code that uses oncron: a clock that is moved by hand, and a context for calling a task's function."""

from oncron.testing.clock import ManualClock
from oncron.testing.fake import FakeRun, fake_run

__all__ = ["FakeRun", "ManualClock", "fake_run"]
