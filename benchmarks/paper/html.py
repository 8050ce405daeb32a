"""A page of text, tables and pictures in one file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
img { max-width: 100%; }
.holds { color: #00664a; } .fails { color: #a33c00; } .open { color: #777; }
pre { background: #f6f6f6; padding: .7rem; overflow-x: auto; font-size: 12px; }
"""


def page(title: str, parts: Sequence[str]) -> str:
    """A whole document."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    body = "\n".join([f"<h1>{escape(title)}</h1>", *(part for part in parts if part)])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def heading(text: str) -> str:
    """A heading of a section."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    """Text."""
    return f"<p>{escape(text)}</p>"


def table(caption: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of text; nothing where there are none."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = ("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>\n" + "\n".join(lines) + "</table>"


def picture(caption: str, png: bytes) -> str:
    """An image within the page."""
    data = base64.b64encode(png).decode()
    text = escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def code(text: str) -> str:
    """Text as it is."""
    return f"<pre>{escape(text)}</pre>"
