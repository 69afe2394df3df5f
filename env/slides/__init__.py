"""Lessons as slides: live in JupyterLab (`make teach`), and as pages with the recorded outputs (`make slides`)."""
