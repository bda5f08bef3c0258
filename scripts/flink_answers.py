"""Asks a running Apache Flink which SQL scripts it refuses.

    scripts/flink_answers.py GATEWAY SCRIPTS.jsonl ANSWERS.jsonl

Each line of SCRIPTS is {"name": …, "sql": …}; with "before": NAME the statements of the line
{"define": NAME, "sql": …} come first. ANSWERS has the same lines with "flink": the reasons of the
refusals, none if Flink takes the script. Declarations are executed, each script in a
session of its own; queries and INSERTs are planned with EXPLAIN; nothing runs. A table that no statement
uses is planned as a source and as a sink, for Flink looks at its options only then.
"""

import json
import re
import sys

from flink_gateway import Gateway, Refused, each_in_a_session

WORD = re.compile(r"[A-Za-z_]+")
COMPILED_SET = re.compile(r"COMPILE\s+(AND\s+EXECUTE\s+)?PLAN\s+'(?:[^']|'')*'\s+(IF\s+NOT\s+EXISTS\s+)?FOR\s+STATEMENT\s+SET\b", re.I)


def split(text):
    """The statements of a script, without comments, as Flink's own client cuts them."""
    statements, current, at, is_set = [], [], 0, False
    pattern = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`|--[^\n]*|/\*(?!\+).*?\*/|;|[^'`;/-]+|.", re.S)
    for token in pattern.finditer(text):
        token = token.group()
        if token.startswith("--") or (token.startswith("/*") and not token.startswith("/*+")):
            current.append(" ")
            continue
        if token == ";":
            sofar = "".join(current).strip()
            words = [w.upper() for w in WORD.findall(sofar)[:5]]
            is_set = "STATEMENT" in words[:4] and "SET" in words[:4] and words[0] in ("EXECUTE", "BEGIN", "EXPLAIN")
            is_set = is_set or bool(COMPILED_SET.match(sofar))
            if is_set and not re.search(r"\bEND$", sofar, re.I):
                current.append(";")
                continue
            if sofar:
                statements.append(sofar)
            current = []
            continue
        current.append(token)
    rest = "".join(current).strip()
    return statements + ([rest] if rest else [])


def planned(statement):
    """The statement that plans this one, or itself where it only declares."""
    words = [w.upper() for w in WORD.findall(statement)[:4]]
    if statement.startswith("(") or words[:1] in (["SELECT"], ["WITH"], ["VALUES"], ["INSERT"]):
        return "EXPLAIN JSON_EXECUTION_PLAN " + statement
    if words[:3] == ["EXECUTE", "STATEMENT", "SET"]:
        return re.sub(r"^EXECUTE", "EXPLAIN", statement, flags=re.I)
    if words[:3] == ["BEGIN", "STATEMENT", "SET"]:
        return re.sub(r"^BEGIN\s+STATEMENT\s+SET\s*;", "EXPLAIN STATEMENT SET BEGIN ", statement, flags=re.I)
    return statement


def unused_table(session, name, probed):
    """Why Flink can neither read nor write a table, or None."""
    reading = session.refusal(f"EXPLAIN SELECT * FROM {name}")
    if reading is None:
        return None
    columns = ", ".join(f"CAST(NULL AS {kind})" for kind in probed)
    writing = session.refusal(f"EXPLAIN INSERT INTO {name} SELECT {columns}")
    return writing and f"{reading} / {writing}"


def physical_types(session, name):
    """The types of the columns that can be written."""
    _, rows = session.run(f"DESCRIBE {name}")
    return [re.sub(r" \*\w+\*| NOT NULL", "", row[1][1]) for row in rows if not row[1][4]]


def ask(url, before, sql):
    """The refusals of one script."""
    session = Gateway(url)
    reasons = []
    try:
        statements = split(before + sql)
        for place, statement in enumerate(statements):
            reason = session.refusal(planned(statement))
            if reason:
                reasons.append(reason)
                continue
            table = re.match(r"CREATE\s+(?:TEMPORARY\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(`[^`]+`|\w+)", statement, re.I)
            rest = " ".join(statements[place + 1:])
            if table and not re.search(r"\b" + re.escape(table[1].strip("`")) + r"\b", rest):
                try:
                    types = physical_types(session, table[1])
                    reason = unused_table(session, table[1], types)
                except Refused as refused:
                    reason = str(refused)
                if reason:
                    reasons.append(reason)
    finally:
        session.close()
    return reasons


PACKAGES = re.compile(r"org\.apache\.(flink\.table\.api|flink\.sql\.parser\.impl|calcite)\.")


def shortened(reason):
    """A reason for a line of a file."""
    return PACKAGES.sub("", reason.replace("\n", " "))[:120]


def main():
    url, lines = sys.argv[1], [json.loads(line) for line in open(sys.argv[2])]
    defined = {line["define"]: line["sql"] for line in lines if "define" in line}
    scripts = [line for line in lines if "define" not in line]
    before = lambda script: defined.get(script.get("before"), "")
    answers = each_in_a_session(
        url, scripts, lambda _, script: ask(url, before(script), script["sql"])
    )
    for script, reasons in zip(scripts, answers):
        script["flink"] = [shortened(reason) for reason in reasons]
    with open(sys.argv[3], "w") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
