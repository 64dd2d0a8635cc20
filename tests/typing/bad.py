"""A user's mistakes: every line marked `# wrong` is an error in pyright, and no other line is."""

from __future__ import annotations

from datetime import timedelta

from oncron import Oncron, RunContext, cron, every, job_lock_key, locked_run

app = Oncron("memory://", retires=3)  # wrong: no such option
Oncron(5)  # wrong: a store is a URL


@app.task
def send_mail(to: str, subject: str = "hi") -> None: ...


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task
async def ship(ctx: RunContext, order_id: int) -> str:
    ctx.enqueue(send_mail, 5)  # wrong: not a str
    ctx.enqueue(send_mail)  # wrong: `to` is missing
    ctx.progress("half")  # wrong: not a number
    return ctx.run_idd  # wrong: no such attribute


@app.task(retrys=3)  # wrong: misspelt
def one() -> None: ...


@app.task(queue=3)  # wrong: a queue is a text
def two() -> None: ...


@app.schedule("0 3 * * *")  # wrong: not a trigger
def three() -> None: ...


@app.schedule(cron("0 3 * * *"), overlap="skipp")  # wrong: not a policy
def four() -> None: ...


@app.on("run.failed")  # wrong: the function takes no event
def five() -> None: ...


app.add_schedule("six", every(minutes=5), print)  # wrong: a function that is no task


async def main() -> None:
    await send_mail.enqueue(to=3)  # wrong: not a str
    await send_mail.enqueue()  # wrong: `to` is missing
    await send_mail.enqueue("a", body="x")  # wrong: no such parameter
    await send_mail.options(delay="soon").enqueue("a")  # wrong: not a duration
    await ship.enqueue(order_id="7")  # wrong: not an int
    text: str = await (await add.enqueue(1, 2)).wait()  # wrong: the result is an int
    add.enqueue(1, 2)  # wrong: not awaited
    total: int = add(1, 2)  # wrong: a coroutine
    await ship(7)  # wrong: called as written, the context comes first
    app.sync(send_mail.options(delay=timedelta(1)))  # wrong: not a coroutine
    await app.runs(state=3)  # wrong: a state is a text
    print(text, total)


@app.task
def walks(ctx: RunContext) -> None:
    for number in ctx.walk(range(3), max_items="two"):  # wrong: not a number
        number.upper()  # wrong: an int
    ctx.walk(3)  # wrong: not a source


app.use("logging")  # wrong: no middleware
app.task(walks.fn, name="again", middleware=3)  # wrong: not a list
Oncron("memory://", encryption=b"key")  # wrong: a mapping of names to keys
locked_run("postgresql://localhost/shop", "nightly", 5)  # wrong: no function
job_lock_key(b"nightly")  # wrong: a str
