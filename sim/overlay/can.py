"""A CAN: how a rectangle floods the zones that it meets, and how it comes to the first of them.

A rectangle OUTER_L < x1 <= INNER_L, INNER_R <= x2 < OUTER_R is here a closed box of floats, low <= p <= high: its
open sides one float further in, as `network.matching.messages.query_boxes` makes it. It enters at the owner of its
inner corner K = (INNER_L, INNER_R), the corner nearest to the diagonal, and spreads to the left and upwards:

      x2 |       :          :
         |   +---:----------:--+ or           A zone Z = [a, b) x [c, d) that meets the box gets it from
         |   |Z3 :   Z2     :  |                F1  nobody, if it holds K: it is the entry;
         |...|...:....^.....:  |                F2  else, if b <= INNER_L (K lies to its right): the owner of
         |   |   : <- | <-  :  |                    (b, max(c, INNER_R)), its neighbour to the right;
         |   |Z1 :....|.....:..|                F3  else (K lies below it): the owner of (INNER_L, the float
         |   |   :  ^   ^   : ^|                    below c), its neighbour underneath.
         |   +---:----------:--K ir
         +--ol--------------------il-- x1

Why this works. Let n(Z) = (min(float below b, INNER_L), max(c, INNER_R)) be the point of Z and the box nearest to K.
  1  The sender meets the box: in F2, low_1 < b <= INNER_L and INNER_R <= max(c, INNER_R) <= high_2, since Z meets the
     box; in F3, a <= INNER_L = high_1 and INNER_R <= float below c < high_2, since c > INNER_R (K is not in Z, though
     a <= INNER_L < b). So the point named lies in the box, and its owner meets the box.
  2  The sender is a neighbour: Z holds the point next to the one named, one float further left or up, and zones do
     not overlap, so the sender begins where Z ends, and they share a piece of that side. Hence a broker knows from its
     neighbours' zones alone to which of them it must pass the rectangle: those that have it as their sender.
  3  Everybody who meets it gets it once: each Z but the entry has one sender, and n(sender) is strictly nearer to K:
     in F2 its x1 grows and its x2 does not, in F3 its x1 is INNER_L already and its x2 falls. Floats are finitely
     many, so following senders ends, and it can only end at the entry: the senders form a tree with the entry as root.
     (K is finite: it is the place of a row. With INNER_L = inf a zone at the right rim would be its own sender.)
As in Meghdoot (Gupta, Sahin, Agrawal, El Abbadi, 2004; see SIMULATION.md) a zone that meets the rectangle gets it
whether or not a subscription in it is affected.

A plain event at x (CN) is the box x1 <= x <= x2: K = (x, x), and no bounds outwards.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from hullcast.network.compiled import part
from hullcast.network.matching.tree import longer
from hullcast.network.wire.arrays import Ints
from hullcast.sim.overlay.zones import Zones, locate_one

#: How a rectangle comes from the server to its entry: the server knows the zones and sends it there at once, or
#: it goes from neighbour to neighbour, as in a CAN where nobody knows more.
Entry = Literal["map", "greedy"]
ENTRIES: tuple[Entry, ...] = ("map", "greedy")

NOBODY = -1  # the sender of what enters
STACK = 128  # enough for most divisions; replaced by a longer one otherwise


@part
def flood(
    zones: Zones,
    low_1: float,
    high_1: float,
    low_2: float,
    high_2: float,
    senders: Ints,
    receivers: Ints,
    used: int,
    stack: Ints,
) -> tuple[Ints, Ints, int]:
    """Append each sender and receiver of the box to senders[:used] and receivers[:used]; returns all three.

    One pair for each zone that meets low <= p <= high, in no particular order; the sender of the entry is NOBODY.
    An empty box meets none. Both arrays are replaced by longer ones when they are full: go on with those returned.
    `stack` is scratch, np.empty(STACK, np.int64). For m zones met in a tree of height h: O(m h).
    """
    if not (low_1 <= high_1 and low_2 <= high_2):
        return senders, receivers, used
    stack[0], height = 0, 1
    while height > 0:
        height -= 1
        node = stack[height]
        zone = zones.owner[node]
        if zone < 0:
            low, high = (low_1, high_1) if zones.dimension[node] == 0 else (low_2, high_2)
            if height + 2 > len(stack):
                stack = longer(stack, height, 2)
            if high >= zones.value[node]:
                stack[height] = zones.right[node]
                height += 1
            if low < zones.value[node]:
                stack[height] = zones.left[node]
                height += 1
            continue
        if used == len(senders):
            senders, receivers = longer(senders, used, 1), longer(receivers, used, 1)
        senders[used], receivers[used] = _sender(zones, zone, high_1, low_2), zone
        used += 1
    return senders, receivers, used


@part
def _sender(zones: Zones, zone: int, inner_l: float, inner_r: float) -> int:
    """The zone that sends this one a box that it meets: F1 to F3."""
    right, bottom = zones.high[zone, 0], zones.low[zone, 1]
    if right <= inner_l:
        return locate_one(zones, right, max(bottom, inner_r))
    if bottom > inner_r:
        return locate_one(zones, inner_l, np.nextafter(bottom, -np.inf))
    return NOBODY


@part
def approach(
    zones: Zones, start: int, x1: float, x2: float, senders: Ints, receivers: Ints, used: int
) -> tuple[Ints, Ints, int]:
    """Append the hops from the zone of broker `start` to the owner of a point, from neighbour to neighbour.

    Greedy, as CAN's routing: of the neighbours beyond the point of the zone nearest to the target (one across the
    side in each dimension that still misses it) the one whose zone is nearest to the target. It never loops: each hop
    comes nearer in one dimension and goes no further away in the other. The point must be finite.

    From any of 1,000 zones to an entry (Table 5.1) it takes 24.5 hops on average; looking at all neighbours 24.0, the
    shortest way 16.8.
    """
    zone = start
    while True:
        side_1, side_2 = _side(zones, zone, 0, x1), _side(zones, zone, 1, x2)
        if side_1 == 0 and side_2 == 0:
            return senders, receivers, used
        following = zone
        if side_1 != 0:
            following = locate_one(zones, _beyond(zones, zone, 0, side_1), _nearest(zones, zone, 1, x2))
        if side_2 != 0:
            other = locate_one(zones, _nearest(zones, zone, 0, x1), _beyond(zones, zone, 1, side_2))
            if side_1 == 0 or _distance(zones, other, x1, x2) < _distance(zones, following, x1, x2):
                following = other
        if used == len(senders):
            senders, receivers = longer(senders, used, 1), longer(receivers, used, 1)
        senders[used], receivers[used] = zone, following
        used += 1
        zone = following


@part
def _side(zones: Zones, zone: int, dimension: int, target: float) -> int:
    """Where the target lies in this dimension: -1 below the zone, 0 inside, 1 above."""
    if target < zones.low[zone, dimension]:
        return -1
    return 1 if target >= zones.high[zone, dimension] else 0


@part
def _beyond(zones: Zones, zone: int, dimension: int, side: int) -> float:
    """The first coordinate outside of the zone on that side."""
    first: float = zones.high[zone, dimension] if side > 0 else np.nextafter(zones.low[zone, dimension], -np.inf)
    return first


@part
def _nearest(zones: Zones, zone: int, dimension: int, target: float) -> float:
    """The coordinate inside of the zone nearest to the target."""
    last: float = np.nextafter(zones.high[zone, dimension], -np.inf)
    nearest: float = min(max(target, zones.low[zone, dimension]), last)
    return nearest


@part
def _distance(zones: Zones, zone: int, x1: float, x2: float) -> float:
    """From the zone to a point, Euclidean."""
    distance: float = np.hypot(x1 - _nearest(zones, zone, 0, x1), x2 - _nearest(zones, zone, 1, x2))
    return distance
