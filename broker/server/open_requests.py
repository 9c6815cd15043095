"""Requests being answered, found by their id or by the links they came through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.network.wire.frames import Request

T = TypeVar("T")


class ByRoute(Generic[T]):
    """What is done for requests, by the route and the id of each.

    A route is set by those it leads through, link by link, and a link's number is never given twice: so nobody can name
    the request of another. An id is the client's, and may come twice if that is what it sends. To add, find and discard
    one takes one step; to find all below some links takes one for each route that ends with our link they are behind.
    """

    def __init__(self) -> None:
        self._links: dict[int, dict[tuple[int, ...], dict[int, list[T]]]] = {}  # by our own link, route, id

    def __len__(self) -> int:
        """How many requests there are."""
        return sum(len(found) for routes in self._links.values() for ids in routes.values() for found in ids.values())

    def add(self, request: Request, thing: T) -> None:
        """This is done for a request."""
        route = request.route
        self._links.setdefault(route[-1], {}).setdefault(route, {}).setdefault(request.id, []).append(thing)

    def discard(self, request: Request, thing: T) -> None:
        """This is not done any more."""
        route = request.route
        routes = self._links.get(route[-1], {})
        ids = routes.get(route, {})
        left = [other for other in ids.get(request.id, ()) if other is not thing]
        if left:
            ids[request.id] = left
            return
        ids.pop(request.id, None)
        if not ids:
            routes.pop(route, None)
        if not routes:
            self._links.pop(route[-1], None)

    def of(self, request: Request) -> list[T]:
        """What is done for the requests that came the same way with the same id."""
        route = request.route
        return list(self._links.get(route[-1], {}).get(route, {}).get(request.id, ()))

    def below(self, links: Sequence[int], route: tuple[int, ...] = ()) -> list[T]:
        """What is done for all requests that came by one of these links of the node that a route leads to; without a
        route, by one of our own."""
        if not route:
            ours = [ids for link in links for ids in self._links.get(link, {}).values()]
        else:
            places, wanted = len(route) + 1, {(link, *route) for link in links}
            routes = self._links.get(route[-1], {})
            ours = [ids for way, ids in routes.items() if way[-places:] in wanted]
        return [thing for ids in ours for found in ids.values() for thing in found]
