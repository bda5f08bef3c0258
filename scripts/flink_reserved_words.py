"""Asks a running Apache Flink which of its keywords it takes as names.

    scripts/flink_reserved_words.py GATEWAY KEYWORDS

KEYWORDS is a file with a keyword on each line. For each it prints the places where Flink refuses the
bare word: c column of CREATE TABLE, a alias after AS, b alias without AS, t table of CREATE
TABLE, f alias of a table, r column in an expression, q column after `table.`.
"""

import sys

from flink_gateway import each_in_a_session

WITH = "WITH ('connector' = 'datagen')"
PLACES = {
    "c": "CREATE TEMPORARY TABLE IF NOT EXISTS column_{0} ({0} INT) " + WITH,
    "a": "EXPLAIN SELECT 1 AS {0}",
    "b": "EXPLAIN SELECT 1 {0}",
    "t": "CREATE TEMPORARY TABLE IF NOT EXISTS {0} (x INT) " + WITH,
    "f": "EXPLAIN SELECT {0}.x FROM (SELECT 1 AS x) AS {0}",
    "r": "EXPLAIN SELECT {0} + 1 FROM (SELECT 1 AS `{0}`) AS t",
    "q": "EXPLAIN SELECT t.{0} FROM (SELECT 1 AS `{0}`) AS t",
}


def main():
    gateway, words = sys.argv[1], open(sys.argv[2]).read().split()

    def ask(session, word):
        return "".join(
            place for place, text in PLACES.items() if session.refusal(text.format(word))
        )

    for word, places in zip(words, each_in_a_session(gateway, words, ask)):
        print(word, places)


main()
