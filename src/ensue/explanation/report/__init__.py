"""A run as one HTML page: what happened to each key, what was found and why, the patterns and how they ran."""

from ensue.explanation.report.page import HtmlReport, report

__all__ = ["HtmlReport", "report"]
