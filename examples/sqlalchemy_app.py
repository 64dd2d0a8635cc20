"""An order and the run that packs it, in one commit of a SQLAlchemy session: both are there, or neither."""

import asyncio

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncron import Oncron

URL = "sqlite:///orders.db"
app = Oncron(URL)
engine = create_engine(URL)  # on PostgreSQL: postgresql+psycopg://


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    packed: Mapped[bool] = mapped_column(default=False)


@app.task
def pack(order_id: int) -> str:
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, order_id)
        order.packed = True
        return order.item


def place(item: str, *, paid: bool = True) -> str:
    """The id of the run that will pack it."""
    with Session(engine) as session, session.begin():
        order = Order(item=item)
        session.add(order)
        session.flush()
        run = pack.options(connection=session).enqueue_sync(order.id)
        if not paid:
            raise ValueError(f"the {item} was not paid: neither order nor run")
    return run.id


async def main() -> None:
    Base.metadata.create_all(engine)
    async with app:
        run = await app.get_run(await asyncio.to_thread(place, "lamp"))
        print("packed", await run.wait(within=20))
        try:
            await asyncio.to_thread(place, "chair", paid=False)
        except ValueError as error:
            print(error)
        print(len(await app.runs(task="pack")), "run in all")


if __name__ == "__main__":
    asyncio.run(main())
