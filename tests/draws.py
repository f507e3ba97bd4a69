"""How many examples a property draws, as a share of what the profile of `conftest.py` asks for."""

from __future__ import annotations

from hypothesis import settings

LEAST = 5


def share(of_profile: float) -> settings:
    """Settings for a property whose examples cost more, or less, than usual.

    >>> share(2).max_examples == 2 * settings.default.max_examples
    True
    """
    return settings(max_examples=max(LEAST, round(of_profile * settings.default.max_examples)))
