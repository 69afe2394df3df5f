"""Exported models as a page that runs them in a browser: `make export-onnx ARGS="--web DIR"`.

The page is opened as a file. A browser lets such a page read no other file, so all that it needs comes as scripts: ONNX Runtime as
WebAssembly, the models, and each call's inputs beside the outputs that candle computed.
"""
