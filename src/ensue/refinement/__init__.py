"""Learned refinement: who or what an event is likely to be, given its context."""

from ensue.refinement.evaluation import Evaluation
from ensue.refinement.files import load_refinement
from ensue.refinement.fitting import fit_refinement
from ensue.refinement.model import Refinement

__all__ = ["Evaluation", "Refinement", "fit_refinement", "load_refinement"]
