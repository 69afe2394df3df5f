"""Running notebooks: a kernel session, the judgement of its cells, and what a run leaves behind."""
