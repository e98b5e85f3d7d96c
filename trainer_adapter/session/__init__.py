"""The clean room's protocol with the ledger: charge, key release, post and model release."""
