"""The page that everybody may see."""
