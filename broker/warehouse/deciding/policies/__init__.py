"""What the warehouse does next: a policy each file, `policy.py` what they have in common."""

from __future__ import annotations

from hullcast.broker.warehouse.deciding.policies.orad import Orad
from hullcast.broker.warehouse.deciding.policies.pareto import Pareto
from hullcast.broker.warehouse.deciding.policies.policy import Fifo, QueriesFirst, UpdatesFirst, WarehousePolicy

#: All policies by name.
POLICIES: dict[str, type[WarehousePolicy]] = {
    policy.name: policy for policy in (Fifo, QueriesFirst, UpdatesFirst, Pareto, Orad)
}
