"""`python -m ensue.apps.cli` is `ensue`."""

from ensue.apps.cli import main

main()
