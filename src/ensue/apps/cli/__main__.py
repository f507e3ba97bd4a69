"""Runs `ensue` as `python -m ensue.apps.cli`."""

from ensue.apps.cli import main

main()
