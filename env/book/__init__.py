"""`make book`: the course as static pages, with the outputs of the recorded run; to be read from a folder, without a server."""
