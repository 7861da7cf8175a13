"""Rows of com.microsoft operators."""
