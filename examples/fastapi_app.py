"""A FastAPI service that is a replica, too: `uvicorn fastapi_app:web`."""

import os
from typing import Any

from fastapi import FastAPI, HTTPException

from oncron import Oncron, every
from oncron.errors import NotFound

jobs = Oncron(os.environ.get("ONCRON_STORE", "sqlite:///oncron.db"), stop_within=10)
web = FastAPI(lifespan=jobs.lifespan)


@jobs.task
async def send_mail(to: str) -> str:
    return f"sent to {to}"


@jobs.schedule(every(minutes=15))
async def clean_up() -> None: ...


@web.post("/mails", status_code=202)
async def send(to: str) -> dict[str, str]:
    run = await send_mail.enqueue(to)
    return {"run": run.id}


@web.get("/runs/{run_id}")
async def read(run_id: str) -> dict[str, Any]:
    try:
        run = await jobs.get_run(run_id)
    except NotFound as error:
        raise HTTPException(404, str(error)) from None
    return {"state": run.state, "result": run.result}
