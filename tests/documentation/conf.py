"""What Sphinx reads: extensions, theme, and which pages there are. `make docs` passes the folder of staged pages.

The font lies in docs/fonts, with licence and digests; search is Sphinx's index, a script beside the pages: nothing is
loaded from another machine, when it is built or when it is read.
"""

# Sphinx gives these names their meaning.
project = "Epsilon Ledger"
html_title = "Epsilon Ledger"
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["../../docs/fonts"]
html_css_files = ["fonts.css"]
_FONT = "Inter, system-ui, sans-serif"
html_theme_options = {"light_css_variables": {"font-stack": _FONT}}
html_copy_source = False
html_show_sphinx = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
# Annotations of other libraries have no page here.
nitpicky = False
