"""The command line. Commands that only read program files start fast, because they load no library for data.

`main` runs `ensue`. The module `commands` defines the commands, their options and their help.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ensue.apps.cli.commands import app as app


def main() -> None:
    """Runs the command in `sys.argv`."""
    from ensue.apps.cli.quick import quick_command
    from ensue.apps.cli.terminal import INTERRUPTED, TERMINATED

    # A supervisor sees the exit code 143, also if the signal comes while modules are imported.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        if "_ENSUE_COMPLETE" not in os.environ and (command := quick_command(sys.argv[1:])) is not None:
            sys.exit(command())
        from ensue.apps.cli.commands import app

        app(prog_name="ensue")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Discard what Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def __getattr__(name: str) -> Any:
    if name == "app":
        from ensue.apps.cli.commands import app

        return app
    raise AttributeError(f"module 'ensue.apps.cli' has no attribute '{name}'")
