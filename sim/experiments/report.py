"""`report.md`: a glossary, the goals, each figure with the claim of Xie (2007) and ours. Every verdict is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.sim import XIE
from hullcast.sim.experiments.goals import TrafficGoal, told
from hullcast.sim.experiments.settings import FULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.sim.experiments.claims import Claim
    from hullcast.sim.experiments.section import Section
    from hullcast.sim.experiments.settings import FigureSettings


#: Goals of a whole run, not of a placement.
EFFORT = ("time", "memory")
#: The words of the report, for readers who have seen nothing else.
WORDS = {
    "event": "a change of one row of a table, here a new price of a stock; x is the column that ranges are about, y "
    "the column whose minimum is asked for",
    "subscription": "`SELECT MIN(y) .. WHERE x BETWEEN x1 AND x2`, kept up to date for one user; an event *affects* it "
    "by changing its answer",
    "ignorable": "an event that cannot change any answer: another row with the same x has a y at least as low, before "
    "and after",
    "broker, gateway": "a process that passes messages on; the gateway of a subscription is the broker that its user "
    "is connected to",
    "frame": "all that one broker sends to another for one event, as one message",
    "S-CN": "server and content-based network, the way of Hullcast: the server describes in a few messages whose "
    "answers change, and brokers pass each message on to where somebody is affected",
    "S-UN": "server and unicast: the server sends a frame to the gateway of every affected subscription; *aggregated*: "
    "one frame to every gateway that has any",
    "CN": "content-based network alone, without a server: every changed row, ignorable or not, goes to all gateways "
    "with a range that holds its x, and subscribers keep the rows and compute their answers",
    "placement": "how brokers are connected, and which of them is the gateway of a subscription: one of the following",
    "can": "content-addressable network (CAN): the plane of all ranges (x1, x2) is cut into *zones*, one for each "
    "broker, and the gateway is the owner of the zone that the range lies in",
    "can-greedy": "the same, but a message reaches its first zone from neighbour to neighbour instead of directly",
    "tree-content": "brokers form a tree below the server; the gateway is the owner of the range's zone, as in `can`",
    "tree-nearest, tree-random": "the same tree; the gateway is the broker nearest to the user, or any broker",
    "fanout": "how many children a broker of a tree has at most",
    "node stress, link stress": "the most frames that one broker sends, or that cross one physical link, for one event",
    "bytes x links": "the bytes of every frame, times the physical links on its path",
    "p99": "the least value that 99 % of the events do not exceed",
}


def write_report(
    settings: FigureSettings,
    sections: Sequence[Section],
    goals: Sequence[TrafficGoal],
    left_out: Sequence[str],
    minutes: float,
) -> str:
    """The text of the report."""
    network = settings.network
    form = "full size" if settings.full else "a small run (`--quick`)"
    parts = [
        "# What a workload costs on the wire",
        f"The traffic figures of {XIE}, chapter 5, reproduced by simulation; below it is called Xie (2007). This is "
        f"{form}: {network.nodes:,} nodes of a network like the Internet (INET), {network.brokers:,} brokers, trees "
        f"with fanout {network.fanout}, seed {network.seed}. All replays together took {minutes:.1f} minutes.",
        *([] if settings.full else _small(settings)),
        "## Words",
        table([["word", "meaning"], *([f"**{word}**", meaning] for word, meaning in WORDS.items())]),
        "Bytes are those of frames between brokers as `network` encodes them, per event, ignorable events included. In "
        "the tables **bold** is what misses its goal or does not hold, *italic* what holds by construction and is not "
        "counted. How it is simulated: sim/SIMULATION.md.",
        *_goals(goals),
    ]
    if left_out:
        parts += ["## Left out", *(f"- {why}" for why in left_out)]
    for section in sections:
        parts += _section(section)
    return "\n\n".join(_joined(parts)) + "\n"


def _small(settings: FigureSettings) -> list[str]:
    """What a run of these sizes cannot show."""
    brokers, most = settings.network.brokers, settings.growing[-1]
    return [
        "## What this small run cannot show",
        f"- How far S-CN is below the others. With {brokers:,} brokers instead of {FULL.network.brokers:,} CN reaches "
        f"fewer gateways, and with at most {most:,} subscriptions instead of {FULL.growing[-1]:,} S-UN notifies fewer: "
        "both look cheaper than at full size, so goals may be missed here that full size reaches.",
        f"- The usual share of ignorable events. The market has {settings.days} days instead of {FULL.days}, and the "
        "first price of each stock is an insert, which is less often ignorable than a change.",
        "- Rare events. p99 and the most of all events stand on fewer events, so the worst may not be among them.",
        "- Time and memory. Replays are so short that starting Spark's jobs takes most of the time; goals of time and "
        "memory are judged at full size only.",
        "It does show the order of the approaches, and the shape of the curves.",
    ]


def _goals(goals: Sequence[TrafficGoal]) -> list[str]:
    if not goals:
        return ["## Goals", "Goals are judged from Figure 5.10, which was not asked for."]
    placed = [goal for goal in goals if goal.aim not in EFFORT]
    columns = list(dict.fromkeys(goal.where for goal in placed))
    rows = [["goal", "target", *columns]]
    for aim in dict.fromkeys(goal.aim for goal in placed):
        mine = {goal.where: goal for goal in placed if goal.aim == aim}
        cells = [_marked(mine[at].measured, mine[at].passed, mine[at].given) if at in mine else "" for at in columns]
        rows.append([aim, next(iter(mine.values())).target, *cells])
    effort = [
        f"{goal.name} {_marked(goal.measured, goal.passed, given=False)} (target {goal.target})"
        for goal in goals
        if goal.aim in EFFORT
    ]
    return ["## Goals", told(goals), table(rows), *(["; ".join(effort) + "."] if effort else [])]


def _marked(text: str, good: bool, given: bool) -> str:
    return f"*{text}*" if given else text if good else f"**{text}**"


def _section(section: Section) -> list[str]:
    parts = [f"## {section.title}", section.workload, f"Xie (2007): {section.thesis}", f"Ours: {section.told}."]
    parts += [f"![{picture.alt}]({picture.path.name})" for picture in section.pictures]
    parts.append(_statements(section.claims))
    parts += _reasons(section.claims)
    parts += [table(figures) for figures in section.figures]
    parts += [f"- {note}" for note in section.notes]
    if section.tables:
        parts.append("Table: " + ", ".join(f"`{path.name}`" for path in section.tables))
    return parts


def _statements(claims: Sequence[Claim]) -> str:
    """A row for each statement, a column for each placement; where there are several workloads they share a cell."""
    columns = list(dict.fromkeys(claim.subject for claim in claims))
    workloads = list(dict.fromkeys(claim.workload for claim in claims))
    if columns == [""]:
        rows = [["statement", "ours", "verdict"]]
        return table(rows + [[claim.statement, claim.ours, claim.verdict] for claim in claims])
    rows = [["statement" if workloads == [""] else f"statement ({' / '.join(workloads)})", *columns]]
    for statement in dict.fromkeys(claim.statement for claim in claims):
        mine = [claim for claim in claims if claim.statement == statement]
        cells = [
            " / ".join(_marked(claim.ours, claim.holds, claim.given) for claim in mine if claim.subject == column)
            for column in columns
        ]
        rows.append([statement, *cells])
    return table(rows)


def _reasons(claims: Sequence[Claim]) -> list[str]:
    """Why statements do not hold, or could not but hold: an item for each, the placements with their reasons."""
    placed = [claim for claim in claims if claim.subject]
    found = []
    for statement in dict.fromkeys(claim.statement for claim in placed):
        mine = [claim for claim in placed if claim.statement == statement]
        given = [claim for claim in mine if claim.given]
        if given:
            found.append(f"- By construction: *{statement}* ({_who(given)}): {given[0].construction}.")
        failing = [claim for claim in mine if not claim.holds]
        if failing:
            found.append(f"- Does not hold: *{statement}*, because " + "; ".join(_because(failing)) + ".")
    return found


def _because(failing: Sequence[Claim]) -> list[str]:
    """One clause for each reason, with what it comes to; of several workloads the first that fails speaks for all."""
    clauses: dict[tuple[str, str], list[str]] = {}
    for subject in dict.fromkeys(claim.subject for claim in failing):
        first = next(claim for claim in failing if claim.subject == subject)
        clauses.setdefault((first.because, first.workload), []).append(f"{subject} {first.detail}".rstrip())
    return [
        f"{because} ({f'{workload}: ' if workload else ''}{', '.join(details)})"
        for (because, workload), details in clauses.items()
    ]


def _who(claims: Sequence[Claim]) -> str:
    return ", ".join(dict.fromkeys(claim.subject for claim in claims))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown of a table; the first row names the columns."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _joined(parts: Iterable[str]) -> list[str]:
    """List items that follow one another belong to one list."""
    found: list[str] = []
    for part in parts:
        if part.startswith("- ") and found and found[-1].startswith("- "):
            found[-1] += "\n" + part
        else:
            found.append(part)
    return found
