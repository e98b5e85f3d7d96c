"""The book: prepare commands, commit them in batches (group commit) and keep the newest checkpoint."""
