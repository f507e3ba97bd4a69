"""Goals: what a pattern waits for, why it did not match, and what proves a match."""

from ensue.goals.justify import justify
from ensue.goals.proofs import Proof
from ensue.goals.waiting import waiting
from ensue.goals.whynot import WhyNot, why_not

__all__ = ["Proof", "WhyNot", "justify", "waiting", "why_not"]
