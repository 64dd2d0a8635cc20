"""A schedule and a task in one file. Start it in two terminals: each tick still runs once."""

from datetime import timedelta

from oncron import Oncron, RunContext, every

app = Oncron("sqlite:///oncron.db")


@app.task(retries=5)
def greet(name: str) -> str:
    print(f"hello {name}", flush=True)
    return name


@app.schedule(every(seconds=1), timeout=timedelta(seconds=30))
def heartbeat(ctx: RunContext) -> None:
    print(f"tick {ctx.tick:%H:%M:%S}", flush=True)
    ctx.enqueue(greet, f"from {ctx.tick:%H:%M:%S}")


if __name__ == "__main__":
    app.run()
