"""A DEPA contract: its JSON, its COSE envelope, its signers and its privacy constraints."""
