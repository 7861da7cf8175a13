"""The use cases, one file a verb: load, choose, run, return a result. This is the Python API."""
