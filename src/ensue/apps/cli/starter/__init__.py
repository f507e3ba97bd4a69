"""`ensue init`: a starter project for a file of events, with patterns that find something in this file."""

from ensue.apps.cli.starter.project import report_project, start_project

__all__ = ["report_project", "start_project"]
