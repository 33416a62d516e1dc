"""Muon, the optimiser of the mini family's matrices: momentum, orthogonalised (Jordan et al., 2024).

`torch.optim.Muon` orthogonalises in bfloat16, which this family's training machine (a CPU without bfloat16 products) does
ten times slower than the float32 used here.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Updates with the root mean square of an AdamW step, so that one learning rate serves both kinds of weights."""

    def __init__(
        self, weights: Iterable[torch.Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.05
    ) -> None:
        super().__init__(weights, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                buffer = state.setdefault("momentum", torch.zeros_like(weight))
                buffer.lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonalize(weight.grad.lerp(buffer, group["momentum"]))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)


def orthogonalize(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest semi-orthogonal matrix, roughly: five steps of a quintic Newton-Schulz iteration in float32."""
    a, b, c = NEWTON_SCHULZ
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x
