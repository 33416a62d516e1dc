"""How much of a proposal stands: one rule, whatever the drafter and the temperature.

At every position the target has one token of its own. A proposed token stands iff it *is* that token; the first that is
not is replaced by it and ends the round. So the emitted tokens are the target's whoever proposes.
"""

from __future__ import annotations

from collections.abc import Sequence


def verify(proposal: Sequence[int], own: Sequence[int]) -> list[int]:
    """The tokens to emit: the accepted part of *proposal*, then one token of the target's own.

    *own* holds the target's token at each proposed position and at the one after: `len(proposal) + 1` tokens.
    """
    accepted = 0
    while accepted < len(proposal) and proposal[accepted] == own[accepted]:
        accepted += 1
    return list(own[: accepted + 1])
