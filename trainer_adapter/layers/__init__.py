"""Layers under ``torch.func``: attention, dropout and recurrent layers, one example at a time."""
