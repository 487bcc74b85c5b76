"""Campaigns side by side, from their results alone: results → likeness, changes → page."""
