"""The programs that record figures on a GPU machine, their peers, and the pages that they write."""
