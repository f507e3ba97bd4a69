"""`ensue init`: a starter project for a file of events, with patterns that find something in this file."""

from ensue.apps.cli.starter.files import program_text
from ensue.apps.cli.starter.project import propose_project, report_project, start_project

__all__ = ["program_text", "propose_project", "report_project", "start_project"]
