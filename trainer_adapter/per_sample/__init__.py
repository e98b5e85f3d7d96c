"""Per-example gradients: captured layers, ghost norms, microbatches and rounding margins."""
