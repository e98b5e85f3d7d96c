"""DEPA's COVID scenario as a governed run: three providers' raw files, one contract, one charge (``make depa``)."""
