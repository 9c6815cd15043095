"""What the warehouse does next: a policy each file, `policy.py` what they have in common."""

from __future__ import annotations

from hullcast.broker.warehouse.policies.fifo import Fifo
from hullcast.broker.warehouse.policies.pareto import Pareto
from hullcast.broker.warehouse.policies.policy import WarehousePolicy
from hullcast.broker.warehouse.policies.queries_first import QueriesFirst
from hullcast.broker.warehouse.policies.updates_first import UpdatesFirst

#: All policies by name.
POLICIES: dict[str, type[WarehousePolicy]] = {
    policy.name: policy for policy in (Fifo, QueriesFirst, UpdatesFirst, Pareto)
}
