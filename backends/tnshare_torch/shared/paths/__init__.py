"""One task after the other, or all at once where a probe has found both the same."""
