"""`python -m ensue.cli` is `ensue`."""

from ensue.cli import main

main()
