"""What ends a loop of Opacus under a charge."""

from __future__ import annotations


class Refusal(RuntimeError):  # noqa: N818 - what it is
    """No step was left, or it was another than the one that was charged; the weights are as they were."""
