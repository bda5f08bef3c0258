"""Compares functions, operators, casts and aggregates with a running Apache Flink, value by value.

    scripts/flink_functions.py FLINK OURS FOLDER [FAMILY…] [--literals] [--seed N] [--most N]

FLINK is the gateway of a cluster (`tests/services/flink start DIR`), OURS that of a server of Thalweg
(docs/gateway.md) whose option allowed-roots names FOLDER, where a table of boundary values is written.
flink_functions.txt has the columns of the table, and the expressions of each family: `{P}` stands for each
member of the pool P, and of more than N combinations N are drawn. With --literals values take the
place of columns, which Flink computes when it plans. Printed is what differs: values, types, and what
only one of the two takes. docs/differences-from-flink.md lists what differs on purpose.
"""

import argparse
import base64
import collections
import itertools
import json
import pathlib
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import flink_gateway
from flink_gateway import PROPERTIES, Gateway, Refused

BATCH, ROWS = 24, 42
DATA = pathlib.Path(__file__).with_suffix(".txt")


def sections():
    """The parts of the data: columns, pools and families, each {name: members}."""
    parts, members = {}, None
    for line in DATA.read_text().splitlines():
        if line.startswith("# "):
            part = parts.setdefault(line[2:], {})
        elif line and not line.startswith(" "):
            members = part.setdefault(line.rstrip(":"), [])
        elif line:
            members += [member.strip(" ") for member in line.rstrip("¦").split(" ¦ ")]
    return parts


def table(columns, path):
    """Writes the file of the table; its declaration."""
    values = {name.split(" ", 1)[0]: [json.loads(value) for value in values] for name, values in columns.items()}
    with open(path, "w") as file:
        for row in range(ROWS):
            # Strides differ, so that values of two columns meet in many combinations.
            fields = {n: v[(row + row // len(v) * (place % 5 + 1)) % len(v)] for place, (n, v) in enumerate(values.items())}
            file.write(json.dumps({"id": row, **fields}, ensure_ascii=False) + "\n")
    return (
        f"CREATE TABLE t (id INT, {', '.join(columns)}) WITH ('connector' = 'filesystem', 'format' = 'json', "
        f"'path' = '{path}', 'json.timestamp-format.standard' = 'SQL')"
    )


def expressions(templates, pools, most, drawn):
    """The expressions of a family, each once."""
    for template in templates:
        choices = [pools[name] for name in re.findall(r"\{(\w+)\}", template)]
        combinations = itertools.product(*choices)
        if len(list(itertools.islice(itertools.product(*choices), most + 1))) > most:
            combinations = ([drawn.choice(choice) for choice in choices] for _ in range(most))
        for combination in combinations:
            members = iter(combination)
            yield re.sub(r"\{(\w+)\}", lambda _: next(members), template)


def with_literals(expression, columns, drawn):
    """The expression with a value in place of each column that has literals."""
    types = {name.split(" ", 1)[0]: (name.split(" ", 1)[1], values) for name, values in columns.items()}

    def literal(match):
        if match[0] not in types or types[match[0]][0].startswith(("ARRAY", "MAP", "ROW")):
            return match[0]
        kind, values = types[match[0]]
        value = json.loads(drawn.choice(values))
        if value is None or kind == "BYTES":
            return "CAST(NULL AS " + kind + ")" if value is None else f"X'{base64.b64decode(value).hex()}'"
        text = str(value).removesuffix("Z") if kind.startswith("TIMESTAMP_LTZ") else str(value)
        return "CAST('" + text.replace("'", "''") + f"' AS {kind})"

    parts = re.split(r"('(?:[^']|'')*')", expression)
    return "".join(part if part.startswith("'") else re.sub(r"\b[a-z]\w*\b(?!\()", literal, part) for part in parts)


class Side:
    """One of the two systems; a session for each thread."""

    def __init__(self, url, declaration, is_batch):
        self.url, self.declaration, self.local = url, declaration, threading.local()
        self.properties = {**PROPERTIES, "execution.runtime-mode": "batch" if is_batch else "streaming"}

    def session(self):
        if not hasattr(self.local, "gateway"):
            self.local.gateway = Gateway(self.url, self.properties)
            self.local.gateway.run(self.declaration)
        return self.local.gateway

    def ask(self, group, tail, answers):
        """Adds the answers to a group of expressions: a type and values, or a refusal."""
        first = "MOD(id, 4)" if "GROUP" in tail else "id"
        query = f"SELECT {first}" + "".join(f",\n{one} AS c{place}" for place, one in enumerate(group)) + f"\nFROM t{tail}"
        try:
            columns, rows = self.session().run(query)
        except Refused as refused:
            place = re.search(r"line (\d+),? column", str(refused))
            if len(group) == 1:
                answers[group[0]] = ("refused", str(refused).strip().splitlines()[-1][:200])
            elif place and 2 <= int(place[1]) < len(group) + 2:
                culprit = int(place[1]) - 2
                self.ask([group[culprit]], tail, answers)
                self.ask(group[:culprit] + group[culprit + 1 :], tail, answers)
            else:
                self.ask(group[: len(group) // 2], tail, answers)
                self.ask(group[len(group) // 2 :], tail, answers)
            return
        fields = sorted((fields for _, fields in rows), key=lambda fields: str(fields[0]))
        for place, one in enumerate(group):
            kind = json.dumps(columns[place + 1]["logicalType"], sort_keys=True)
            answers[one] = (kind, [row[place + 1] for row in fields])

    def answers(self, groups, tail):
        answers = {}
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda group: self.ask(group, tail, answers), groups))
        return answers


def compared(flink, ours):
    """What differs: a kind and a line for each expression."""
    for one, (kind, values) in flink.items():
        here_kind, here = ours[one]
        if "refused" in (kind, here_kind):
            if kind != here_kind:
                yield ("only Flink takes it" if here_kind == "refused" else "only Thalweg takes it"), f"{one}: {here} / {values}"[:300]
            continue
        if kind.replace("false", "true") != here_kind.replace("false", "true"):
            yield "type", f"{one}: {here_kind}, in Flink {kind}"
        pairs = [(a, b) for a, b in zip(here, values) if a != b]
        if pairs:
            yield "value", f"{one}: {pairs[0][0]!r}, in Flink {pairs[0][1]!r} ({len(pairs)} rows)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("flink"), parser.add_argument("ours"), parser.add_argument("folder")
    parser.add_argument("families", nargs="*"), parser.add_argument("--literals", action="store_true")
    parser.add_argument("--seed", type=int, default=1), parser.add_argument("--most", type=int, default=60)
    options = parser.parse_args()
    # The place of what is refused is in an outer error.
    flink_gateway.root_cause = lambda text: "\n".join(json.loads(text)["errors"])
    parts = sections()
    declaration = table(parts["columns"], pathlib.Path(options.folder).resolve() / "values.json")
    for family in options.families or parts["families"]:
        drawn = random.Random(f"{family}{options.seed}")
        asked = expressions(parts["families"][family], parts["pools"], options.most, drawn)
        if options.literals:
            asked = (with_literals(one, parts["columns"], drawn) for one in asked)
        asked = list(dict.fromkeys(asked))
        tail = " GROUP BY MOD(id, 4)" if family == "aggregates" else " WHERE id < 2" if options.literals else ""
        sides = [Side(url, declaration, family == "aggregates") for url in (options.ours, options.flink)]
        ours = sides[0].answers([asked[at : at + BATCH] for at in range(0, len(asked), BATCH)], tail)
        # What we refuse is asked one by one, for a group that is refused is asked many times.
        taken = [one for one in asked if ours[one][0] != "refused"]
        groups = [taken[at : at + BATCH] for at in range(0, len(taken), BATCH)]
        groups += [[one] for one in asked if ours[one][0] == "refused"]
        found = list(compared(sides[1].answers(groups, tail), ours))
        for kind, line in sorted(found):
            print(f"{kind}: {line}")
        counts = collections.Counter(kind for kind, _ in found)
        print(f"{family}: {len(asked)} expressions; " + (", ".join(f"{n} {kind}" for kind, n in counts.items()) or "no difference"))


if __name__ == "__main__":
    main()
