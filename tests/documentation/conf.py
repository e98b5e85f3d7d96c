"""What Sphinx reads: extensions, theme, and which pages there are. `make docs` passes the folder of staged pages.

Fonts are the reader's own (Furo names system fonts), search is Sphinx's index, a script beside the pages: nothing is
loaded from another machine, when it is built or when it is read.
"""

# Sphinx gives these names their meaning.
project = "Epsilon Ledger"
html_title = "Epsilon Ledger"
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
# Annotations of other libraries have no page here.
nitpicky = False
