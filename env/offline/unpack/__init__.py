"""What unpacks the offline bundle: a package that imports nothing of the others, since it travels alone."""
