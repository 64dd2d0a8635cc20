"""oncron in web frameworks: `oncron.contrib.django`, `oncron.contrib.flask`. FastAPI and Starlette need no more than
`app.lifespan`, SQLAlchemy no more than `task.options(connection=session)`."""
