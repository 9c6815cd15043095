"""Which operator runs next: a policy each file, `policy.py` what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.broker.streams.policies.bounded_chain import BoundedChain
from hullcast.broker.streams.policies.chain import ChainPolicy
from hullcast.broker.streams.policies.policy import FifoPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.streams.policies.policy import OperatorPolicy

#: All policies by name.
OPERATOR_POLICIES: dict[str, Callable[[], OperatorPolicy]] = {
    policy.name: policy for policy in (ChainPolicy, FifoPolicy, BoundedChain)
}
