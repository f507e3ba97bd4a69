"""Workflows, written as text or read from BPMN, and the constraints that all of their traces obey."""

from ensue.process.workflows import Workflow, read_bpmn, workflow

__all__ = ["Workflow", "read_bpmn", "workflow"]
