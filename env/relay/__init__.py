"""The kernel that Jupyter sees: it answers at once, runs evcxr_jupyter behind it, and passes messages in both directions."""


class NotReadyError(Exception):
    """Why no Rust kernel can start yet, and what to do."""


# How `lesson.join` speaks to the relay: by what its cell shows.
CLASS = "application/vnd.gpulab.class+json"
