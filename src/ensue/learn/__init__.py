"""Learned refinement: predict who or what an event is, given its context."""

from ensue.learn.calibration import Evaluation
from ensue.learn.refinement import Refinement, fit_refinement, load_refinement

__all__ = ["Evaluation", "Refinement", "fit_refinement", "load_refinement"]
