"""Figures of papers, reproduced: a folder for each paper with its figures and claims; what all of them need is here.

A run makes its figures from steps (steps.py) in one Spark session (run.py), judges what a paper says (claims.py) and
writes a report (report.py). A paper is a `Paper` (figures.py): which sections there are and how they are measured.
"""
