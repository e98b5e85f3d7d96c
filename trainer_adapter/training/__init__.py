"""What a TDC uses: ``attach``, records, model export and the privacy audit."""
