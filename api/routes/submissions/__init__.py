"""Routes that record: commands, batches of charges, documents, and the challenges that some commands answer."""
