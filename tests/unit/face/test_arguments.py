"""Binding, checking and storing arguments: JSON by name, typed, refused with the path."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, strategies as st

from oncron._arguments import Parameters
from oncron._json import dumps, loads, plain
from oncron.errors import InvalidArguments


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Order:
    id: UUID
    total: Decimal
    at: datetime
    items: list[Point] = field(default_factory=list)


class Model:
    """Shaped like a Pydantic model, which oncron knows by these two methods alone."""

    def __init__(self, n: int) -> None:
        self.n = n

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"n": self.n}

    @classmethod
    def model_validate(cls, value: Mapping[str, Any]) -> Model:
        if not isinstance(value.get("n"), int):
            raise ValueError("n: an int is needed")  # noqa: TRY004 - as Pydantic's ValidationError
        return cls(value["n"])


def everything(
    order: Order,
    colour: Colour,
    day: date,
    at: time,
    wait: timedelta,
    point: Point,
    pair: tuple[int, str],
    tags: set[str],
    model: Model,
    small: Annotated[int, msgspec.Meta(lt=10)] = 1,
    anything: Any = None,
) -> Order: ...


ORDER = Order(UUID(int=7), Decimal("1.10"), datetime(2026, 1, 1, tzinfo=UTC), [Point(1, 2)])


def stored(fn: Any, *args: Any, **kwargs: Any) -> str:
    parameters = Parameters(fn, "task")
    return parameters.encode(parameters.bind(args, kwargs))


def test_rich_types_come_back_as_they_went_in() -> None:
    given_ = {
        "order": ORDER,
        "colour": Colour.BLUE,
        "day": date(2026, 2, 3),
        "at": time(8, 30),
        "wait": timedelta(minutes=5),
        "point": Point(3),
        "pair": (1, "a"),
        "tags": {"x"},
        "model": Model(4),
    }
    parameters = Parameters(everything, "task")
    back = parameters.decode(parameters.encode(parameters.bind((), given_)))
    assert back.pop("model").n == 4
    assert back == {name: value for name, value in given_.items() if name != "model"}


def test_arguments_are_stored_by_name_and_without_defaults() -> None:
    def task(a: int, b: str = "x", *, c: float = 1.5) -> None: ...

    assert loads(stored(task, 1)) == {"a": 1}
    assert loads(stored(task, 1, "y", c=2.5)) == {"a": 1, "b": "y", "c": 2.5}


def test_a_result_comes_back_as_its_annotation_says() -> None:
    parameters = Parameters(everything, "task")
    assert parameters.decode_result(dumps(ORDER)) == ORDER
    assert parameters.decode_result('"a shortened repr"') == "a shortened repr"


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"z": 1}, "unexpected keyword argument 'z'"),
        ((1,), {"a": 2}, "multiple values for argument 'a'"),
    ],
)
def test_a_call_that_does_not_bind_says_what_the_task_takes(args: Any, kwargs: Any, says: str) -> None:
    def task(a: int, b: int = 2) -> None: ...

    with pytest.raises(InvalidArguments, match=says) as raised:
        stored(task, *args, **kwargs)
    assert "(a, b=2)" in str(raised.value)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Order(UUID(int=1), Decimal(1), datetime.now(UTC), [Point(1), Point("2")]), "$.order.items[1].x"),  # type: ignore[arg-type]
        ({"id": "no uuid", "total": "1", "at": "2026-01-01T00:00:00Z"}, "$.order.id"),
        ({"id": str(UUID(int=1)), "total": "1"}, "$.order"),
        (None, "$.order"),
    ],
)
def test_a_misfit_is_refused_with_its_path(value: Any, path: str) -> None:
    def task(order: Order) -> None: ...

    with pytest.raises(InvalidArguments, match="task 'task'") as raised:
        stored(task, value)
    assert raised.value.path == path
    assert path in str(raised.value)


def test_a_pydantic_model_that_does_not_validate_is_a_misfit() -> None:
    def task(model: Model) -> None: ...

    with pytest.raises(InvalidArguments, match="an int is needed"):
        stored(task, {"n": "x"})


def test_a_text_is_no_number_and_a_whole_number_may_be_a_float() -> None:
    def task(n: int, f: float) -> None: ...

    with pytest.raises(InvalidArguments, match=r"\$.n: expected `int`, got `str`"):
        stored(task, "5", 1.0)
    assert loads(stored(task, 5, 1)) == {"n": 5, "f": 1}


def test_other_named_arguments_are_taken_where_the_function_takes_them() -> None:
    def task(a: int, **others: Any) -> None: ...

    parameters = Parameters(task, "task")
    text = parameters.encode(parameters.bind((1,), {"b": 2}))
    assert parameters.decode(text) == {"a": 1, "b": 2}


def cyclic() -> list[Any]:
    ring: list[Any] = []
    ring.append({"again": ring})
    return ring


def cyclic_record() -> Order:
    order = Order(UUID(int=1), Decimal(1), datetime.now(UTC))
    order.items.append(order)  # type: ignore[arg-type]
    return order


class Local: ...


B159 = [
    ("a lock", threading.Lock(), "lock"),
    ("a lambda", lambda: None, "function"),
    ("a class of one's own", Local(), "Local"),
    ("a class itself", Local, "type"),
    ("a cyclic list", cyclic(), "contains itself"),
    ("a cyclic record", cyclic_record(), "contains itself"),
    ("not a number", float("nan"), "nan"),
    ("infinity", [float("inf")], "inf"),
    ("a Decimal that is not a number", Decimal("NaN"), "NaN"),
    ("bytes", b"x", "bytes"),
    ("bytes in a record", Point(b"x"), "bytes"),  # type: ignore[arg-type]
    ("a naive datetime", datetime(2026, 1, 1), "naive"),
    ("a naive datetime in a record", Order(UUID(int=1), Decimal(1), datetime(2026, 1, 1)), "naive"),
    ("a number beyond 64 bits", 2**70, "64 bits"),
    ("a lone surrogate", "\ud800", "surrogate"),
    ("a key that is no text", {(1, 2): 3}, "keys are text"),
    ("a generator", (n for n in [1]), "generator"),
    ("nested too deeply", [], "deeper"),
]


@pytest.mark.parametrize(("value", "says"), [(value, says) for _, value, says in B159], ids=[what for what, *_ in B159])
def test_what_is_not_json_is_refused_by_argument_and_type_before_anything_is_stored_b159(value: Any, says: str) -> None:
    def task(thing: Any) -> None: ...

    if says == "deeper":
        for _ in range(200):
            value = [value]
    with pytest.raises(InvalidArguments, match=says) as raised:
        stored(task, value)
    assert raised.value.path.startswith("$.thing")
    assert "task 'task': $.thing" in str(raised.value)


def test_an_open_file_is_refused(tmp_path: Any) -> None:
    def task(thing: Any) -> None: ...

    with (tmp_path / "f").open("w") as file, pytest.raises(InvalidArguments, match="TextIOWrapper"):
        stored(task, [1, {"f": file}])


def test_arguments_may_take_256_kib_and_not_a_byte_more() -> None:
    def task(text: str) -> None: ...

    empty = len(stored(task, ""))
    assert len(stored(task, "x" * (256 * 1024 - empty))) == 256 * 1024
    with pytest.raises(InvalidArguments, match="more than 262,144; store the data elsewhere"):
        stored(task, "x" * (256 * 1024 - empty + 1))


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert plain({"a": shared, "b": [shared, shared]}) == {"a": [1], "b": [[1], [1]]}


def test_an_aware_datetime_keeps_its_instant() -> None:
    def task(at: datetime) -> None: ...

    at = datetime(2026, 7, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert Parameters(task, "task").decode(stored(task, at)) == {"at": at}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)  # fmt: skip
def test_every_json_value_comes_back_equal(value: Any) -> None:
    assert loads(dumps(value)) == value
