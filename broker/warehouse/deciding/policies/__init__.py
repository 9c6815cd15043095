"""What the warehouse does next: a policy each file, `policy.py` what they have in common."""

from __future__ import annotations

from hullcast.broker.warehouse.deciding.policies.group_and_run import GroupAndRun
from hullcast.broker.warehouse.deciding.policies.orad import Odrtb, Orad
from hullcast.broker.warehouse.deciding.policies.pareto import Pareto
from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy
from hullcast.broker.warehouse.deciding.policies.simple import Fifo, Myopic, QueriesFirst, UpdatesFirst

#: All policies by name.
POLICIES: dict[str, type[WarehousePolicy]] = {
    policy.name: policy for policy in (Fifo, QueriesFirst, UpdatesFirst, Myopic, GroupAndRun, Pareto, Orad, Odrtb)
}
