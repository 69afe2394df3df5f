"""JupyterHub for a class: settings for one machine and for Kubernetes, and what a machine carries."""
