"""Rows of ONNX's standard operators; other formats share most of them."""
