"""A Flask app that enqueues; `flask --app flask_app oncron run` is the replica that runs the tasks, in its context."""

from flask import Flask, current_app

from oncron import every
from oncron.contrib.flask import Oncron
from oncron.errors import NotFound

jobs = Oncron(stop_within=10)


@jobs.task
def send_mail(to: str) -> str:
    return f"sent to {to} by {current_app.config['SENDER']}"


@jobs.schedule(every(seconds=1))
def heartbeat() -> None:
    print("heartbeat of", current_app.name, flush=True)


def create_app() -> Flask:
    web = Flask(__name__)
    web.config.from_mapping(SENDER="shop@example.org")
    web.config.from_prefixed_env()  # FLASK_ONCRON_STORE
    jobs.init_app(web)

    @web.post("/mails/<to>")
    def send(to: str) -> tuple[dict[str, str], int]:
        return {"run": send_mail.enqueue_sync(to).id}, 202

    @web.get("/runs/<run_id>")
    def read(run_id: str) -> tuple[dict[str, object], int]:
        try:
            run = jobs.sync(jobs.get_run(run_id))
        except NotFound as error:
            return {"error": str(error)}, 404
        return {"state": run.state, "result": run.result}, 200

    return web
