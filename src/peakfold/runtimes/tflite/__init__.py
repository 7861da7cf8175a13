"""TensorFlow Lite: plans written into the file, and interpreters that really run it.

Interpreters run in processes of their own (`interpreter`), because they trust their files.
"""
