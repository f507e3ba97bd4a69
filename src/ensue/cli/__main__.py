"""`python -m ensue.cli` is `ensue`."""

from ensue.cli import app

app(prog_name="ensue")
