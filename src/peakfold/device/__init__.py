"""Devices as data: peaks, memory and links, each figure with its source."""
