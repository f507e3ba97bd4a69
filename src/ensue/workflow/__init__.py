"""Workflows, written as text or read from BPMN, and the constraints that all of their traces obey."""

from ensue.workflow.model import Workflow, workflow

__all__ = ["Workflow", "workflow"]
