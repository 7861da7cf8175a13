"""TensorFlow Lite files to graphs."""
