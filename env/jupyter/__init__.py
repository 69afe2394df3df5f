"""What this course changes in JupyterLab: settings, how lessons are saved, and an extension for the page."""
