"""The optimizer of the matrices inside a model's blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch


class Muon:
    """Muon (Jordan et al., 2024): momentum, then each matrix's update made nearly orthogonal.

    `torch.optim.Muon` runs its Newton-Schulz iteration in bfloat16, which CPUs without bfloat16
    units emulate a hundred times slower than float32; hence float32 here, and batched: all
    matrices of one shape at once.
    """

    COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic, from the reference implementation
    ITERATIONS = 5
    MOMENTUM = 0.95

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        lr: float,
        decay: float,
        *,
        maps: Callable[[torch.Tensor], Sequence[torch.Tensor]],
    ) -> None:
        """Takes 2-D parameters, and a function that splits one into its linear maps.

        Args:
            parameters: What to train.
            lr: Learning rate of a square matrix.
            decay: Weight decay, decoupled, times the learning rate.
            maps: Views of a parameter (or its momentum) as matrices of inputs x outputs. If a
                parameter fuses several maps, each is orthogonalised separately.
        """
        self.parameters = parameters
        self.lr = lr
        self.decay = decay
        self.maps = maps
        self.momenta = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """One update with the learning rate times `factor`; consumes the gradients."""
        by_shape: dict[tuple[int, ...], list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for parameter, momentum in zip(self.parameters, self.momenta, strict=True):
            gradient = parameter.grad
            assert gradient is not None
            momentum.lerp_(gradient, 1 - self.MOMENTUM)
            update = gradient.lerp(momentum, self.MOMENTUM)  # Nesterov
            for target, part in zip(self.maps(parameter), self.maps(update), strict=True):
                by_shape.setdefault(tuple(target.shape), []).append((target, part))
            parameter.grad = None
        for (rows, columns), pairs in by_shape.items():
            updates = self.orthogonal(torch.stack([part for _, part in pairs]))
            scale = self.lr * factor * math.sqrt(max(1.0, columns / rows))
            for (target, _), update in zip(pairs, updates, strict=True):
                target.mul_(1 - self.lr * factor * self.decay).sub_(update, alpha=scale)

    @classmethod
    def orthogonal(cls, batch: torch.Tensor) -> torch.Tensor:
        """The nearly orthogonal factor of each matrix of a batch (N, rows, columns)."""
        transposed = batch.shape[1] > batch.shape[2]
        x = batch.mT if transposed else batch
        x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
        a, b, c = cls.COEFFICIENTS
        for _ in range(cls.ITERATIONS):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x.mT if transposed else x
