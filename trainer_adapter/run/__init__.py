"""One charged run: its step budget, progress reports and checkpoints."""
