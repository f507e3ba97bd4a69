"""Learned refinement: who or what an event is likely to be, given its context."""

from ensue.learn.calibration import Evaluation
from ensue.learn.files import load_refinement
from ensue.learn.fitting import fit_refinement
from ensue.learn.refinement import Refinement

__all__ = ["Evaluation", "Refinement", "fit_refinement", "load_refinement"]
