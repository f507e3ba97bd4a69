"""Processes: workflows as text or BPMN, the constraints that follow from them, and constraints mined from a log.

>>> from ensue import process
>>> process.workflow("Order -> Paid").constraints()[0]
Prior(earlier='Order', later='Paid')
"""

from ensue.process.proposals import Proposal, mine
from ensue.process.workflows import Workflow, read_bpmn, workflow

__all__ = ["Proposal", "Workflow", "mine", "read_bpmn", "workflow"]


def __dir__() -> list[str]:
    return [*__all__]
