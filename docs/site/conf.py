"""Sphinx's settings for the site. Its sources are staged by scripts/site_pages.py."""

import re
from pathlib import Path

project = "gdbheap"
html_title = "gdbheap"
# build/site-src/conf.py, or docs/site/conf.py: both are two folders below the root.
INIT = Path(__file__).resolve().parents[2] / "gdbheap" / "__init__.py"
version = release = re.findall(r'^__version__ = "(.+)"$', INIT.read_text(encoding="utf-8"), re.MULTILINE)[0]
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
# Links within a page and between pages are to headings, as GitHub names them.
myst_heading_anchors = 4
# What is no page is linked as it is; site_check.py looks whether it is there.
myst_url_schemes = {"http": None, "https": None, "file-of-site": {"url": "{{path}}"}}
# "…" and other text stays as it is written.
smartquotes = False
highlight_language = "none"
nitpicky = True
html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False
html_css_files = ["site.css"]
html_static_path = ["_static"]
# Sphinx's own search: an index in the site, read by the page; it works without a server, too.
html_extra_path = ["_extra"]
