"""Figures of papers reproduced, and studies of our own; what all of them need is here.

A run makes its results from steps (steps.py) in one Spark session (run.py), judges what is said of them (claims.py) and
writes a report (report.py). A study (study.py) declares grids of parameters, which sweeping.py measures for several
seeds; each is a file or folder in studies/. Chapter 5 of Xie (2007), in traffic/, is a `Paper` (figures.py): its
sections are measured each in its own way.
"""
