"""The service as a party sees it: signed commands, detached signatures and key grants."""
