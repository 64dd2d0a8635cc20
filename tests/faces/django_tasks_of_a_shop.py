"""Tasks of Django's, for inside_django.py: importable by their dotted paths."""

from typing import Any

from shop.models import Order

from oncron.contrib.django import app

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


class Refused(Exception): ...


@task
def add(a: Any, b: Any) -> list[Any]:
    return [a, b]


@task
async def double(number: int) -> int:
    return number * 2


@task(takes_context=True)
def told(context: Any, word: str) -> list[Any]:
    return [context.task_result.id, context.attempt, context.task_result.status, word]


@task
def fail() -> None:
    raise Refused("no stock")


@task
def makes_a_set() -> set[int]:
    return {1}


@app.task(executor="process")
def count_apart() -> int:
    return Order.objects.count()
