"""Compares the NEXMark queries of benches/nexmark on Thalweg and on a running Apache Flink.

    scripts/flink_nexmark.py THALWEG GATEWAY FOLDER [EVENTS [QUERY…]]

THALWEG is the program, GATEWAY the address of Flink's SQL gateway. The events are written to files in
FOLDER, which task managers must be able to read; both engines read those. Prints what
`thalweg compare --flink` says of each query. Query 10 writes files alone, so its query is compared;
query 12 counts in processing time, and differs in each run.
"""

import pathlib
import re
import subprocess
import sys

QUERIES = pathlib.Path(__file__).resolve().parent.parent / "benches" / "nexmark"
TABLE = re.compile(r"(CREATE TABLE (\w+) \(\n.*?\n\)) WITH \('connector' = 'nexmark', 'kind' = '(\w+)', \$\{events\}\)", re.S)


def run(program, *arguments):
    """The exit status and what was printed."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def write_events(program, folder, events):
    """Writes the events of each kind to a file, in their order."""
    declared = {}
    for path in sorted(QUERIES.glob("q*.sql")):
        for text, name, kind in TABLE.findall(path.read_text()):
            declared.setdefault(kind, (text, name))
    for kind, (text, name) in declared.items():
        file = folder / f"{kind}.json"
        if file.exists():
            continue
        options = f"'connector' = 'nexmark', 'kind' = '{kind}', 'events' = '{events}'"
        sink = text.replace(f"CREATE TABLE {name}", "CREATE TABLE written")
        sink = re.sub(r",\s*WATERMARK FOR[^\n]*", "", sink)
        sql = f"{text} WITH ({options});\n{sink} WITH ('connector' = 'filesystem', 'path' = '{file}', 'format' = 'json');\n"
        sql += f"INSERT INTO written SELECT * FROM {name};"
        status, said = run(program, "run", "--workers", "1", "--allow-path", str(folder), "-e", sql)
        if status:
            sys.exit(said)
    side_input = folder / "side_input.csv"
    side_input.write_text("".join(f"{key},value{key}\n" for key in range(10_000)))
    return side_input


def main():
    program, gateway = sys.argv[1:3]
    folder = pathlib.Path(sys.argv[3]).resolve()
    events = sys.argv[4] if len(sys.argv) > 4 else "1000000"
    names = sys.argv[5:] or [f"q{number}" for number in range(24)]
    folder.mkdir(parents=True, exist_ok=True)
    side_input = write_events(program, folder, events)
    for name in names:
        text = (QUERIES / f"{name}.sql").read_text()
        files = rf"\1 WITH ('connector' = 'filesystem', 'path' = '{folder}/\3.json', 'format' = 'json')"
        file = folder / f"{name}.sql"
        file.write_text(TABLE.sub(files, text))
        parameters = ["--param", f"side_input={side_input}", "--param", f"output={folder}/out"]
        arguments = ["compare", "--flink", gateway, "--allow-path", str(folder), *parameters, "--timeout", "600", "--rows", "4"]
        _, said = run(program, *arguments, str(file))
        print(f"{name}: {said.replace(str(folder) + '/', '').strip()}", flush=True)


if __name__ == "__main__":
    main()
