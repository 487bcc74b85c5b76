"""The report: one HTML file that needs no network. view (words) → charts, theme → page."""

from crossover.report.page import render

__all__ = ["render"]
