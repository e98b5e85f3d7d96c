"""The views: one module and one template each."""
