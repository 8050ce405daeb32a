"""A page of text, tables and pictures in one file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
img { max-width: 100%; }
.holds { color: #00664a; } .fails { color: #a33c00; } .open { color: #666; } .best { font-weight: 600; }
figure { margin: 1rem 0; } figcaption { font-size: 13px; color: #444; }
pre { background: #f6f6f6; padding: .7rem; overflow-x: auto; font-size: 12px; }
"""


@dataclass(frozen=True)
class Cell:
    """A cell of a table in a class of the style: holds, fails, open or best."""

    text: str
    kind: str


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


def table(caption: str, titles: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> str:
    """Rows of text; nothing where there are none."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = ("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>\n" + "\n".join(lines) + "</table>"


def picture(caption: str, png: bytes) -> str:
    """An image within the page."""
    data = base64.b64encode(png).decode()
    text = escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def details(summary: str, text: str) -> str:
    """Text as it is, behind a line that unfolds it."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    return f'<td class="{cell.kind}">{escape(cell.text)}</td>'
