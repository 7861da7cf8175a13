"""Shared objects: whole buffers handed from tenant to tenant."""
