"""Explain a run: what a pattern waits for, why it did not match, what proves a match, and a report page."""

from ensue.explanation.goals import waiting
from ensue.explanation.misses import WhyNot, why_not
from ensue.explanation.proofs import Proof, justify

__all__ = ["Proof", "WhyNot", "justify", "waiting", "why_not"]
