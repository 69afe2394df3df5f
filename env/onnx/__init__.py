"""What other programs say of the files that `gpulab export-onnx` writes."""
