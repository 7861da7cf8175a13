"""Advice from costs."""
