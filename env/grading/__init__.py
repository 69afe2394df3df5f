"""Lessons' exercises as nbgrader assignments: the course's folder, isolated runs, points, feedback."""
