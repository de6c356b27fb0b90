"""What mkdocs does to pages: roles of Sphinx in docstrings become plain code."""
import re


def on_page_content(html, **_):
    return re.sub(r":(mod|func|class|meth|attr|data|exc):\s*(?=<code>)", "", html)
