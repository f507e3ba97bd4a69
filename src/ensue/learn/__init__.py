"""Learned refinement: predict who or what an event is, given its context."""

from ensue.learn.calibration import Evaluation
from ensue.learn.refinement import Refinement, fit, load

__all__ = ["Evaluation", "Refinement", "fit", "load"]


def __dir__() -> list[str]:
    return [*__all__]
