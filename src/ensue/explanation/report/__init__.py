"""A run as one HTML page: the timeline of each key, the matches and their proofs, the patterns and their plans."""

from ensue.explanation.report.page import HtmlReport, report

__all__ = ["HtmlReport", "report"]
