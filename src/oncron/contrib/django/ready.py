"""Importing this sets Django up: first of all in a worker process, whose tasks may import models."""

from oncron.contrib.django._project import set_up

set_up()
