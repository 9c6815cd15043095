"""One page for the reviewer of a reproduction: every table, figure and theorem of five sources, and what became of it.

items.py says what an item is; each source has a file of its items; running.py runs what answers them, and page.py
writes the page.
"""

from hullcast.sim.experiments.papers.babcock import BABCOCK
from hullcast.sim.experiments.papers.bateni import BATENI
from hullcast.sim.experiments.papers.thiele import THIELE
from hullcast.sim.experiments.papers.vu import VU
from hullcast.sim.experiments.papers.xie import XIE

SOURCES = {source.name: source for source in (XIE, BATENI, VU, BABCOCK, THIELE)}
