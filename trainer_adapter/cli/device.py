"""Where training runs: the best device present, and its name in words."""

from __future__ import annotations

from pathlib import Path

import torch


def choose() -> torch.device:
    """The first CUDA device if there is one, else the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def in_words(device: torch.device) -> str:
    """The device as people name it, as ``NVIDIA H200 (GPU)`` or ``Intel Xeon, 2 threads (CPU)``."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} (GPU)"
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} {'thread' if threads == 1 else 'threads'} (CPU)"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "processor"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "processor")
