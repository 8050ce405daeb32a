"""Measurements of tnshare: ratios of medians, from rounds in which the candidates are shuffled anew."""
