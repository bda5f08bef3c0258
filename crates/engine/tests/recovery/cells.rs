//! Which queries are killed under which contract, and what equality means for each.

use std::collections::BTreeMap;

use super::jobs::DISORDER_MS;

/// What of two outputs has to be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equality {
    /// The rows in their sequence.
    Sequence,
    /// The rows in any sequence.
    Rows,
    /// What is left when the changes have been applied.
    Left,
}

/// What a query puts out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rows that stay.
    Rows,
    /// Rows that say what they do.
    Changes,
}

/// A query, separate from its contract.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    pub name: &'static str,
    pub inputs: usize,
    pub kind: Kind,
    /// The columns of its result.
    pub columns: &'static str,
    select: &'static str,
}

/// A query under a contract.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub query: Query,
    pub order: &'static str,
}

const ORDERS: [&str; 3] = ["epoch", "arrival", "event_time"];

const QUERIES: [Query; 10] = [
    Query {
        name: "tumbling",
        inputs: 1,
        kind: Kind::Rows,
        columns: "at TIMESTAMP(3), k STRING, n BIGINT, total INT, highest INT",
        select: "SELECT window_start, k, COUNT(*), SUM(v), MAX(v)
            FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end, k",
    },
    Query {
        name: "hopping",
        inputs: 1,
        kind: Kind::Rows,
        columns: "at TIMESTAMP(3), k STRING, n BIGINT, mean DOUBLE",
        select: "SELECT window_start, k, COUNT(DISTINCT v), SUM(CAST(v AS DOUBLE) / 7)
            FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND))
            GROUP BY window_start, window_end, k",
    },
    Query {
        name: "sessions",
        inputs: 1,
        kind: Kind::Rows,
        columns: "at TIMESTAMP(3), till TIMESTAMP(3), k STRING, n BIGINT, total INT",
        select: "SELECT window_start, window_end, k, COUNT(*), SUM(v)
            FROM TABLE(SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND))
            GROUP BY window_start, window_end, k",
    },
    Query {
        name: "first_rows_of_windows",
        inputs: 1,
        kind: Kind::Rows,
        columns: "at TIMESTAMP(3), k STRING, id BIGINT, v INT",
        select: "SELECT window_start, k, id, v FROM (
              SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY v DESC, id) AS n
              FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            ) WHERE n <= 2",
    },
    Query {
        name: "interval_join",
        inputs: 2,
        kind: Kind::Rows,
        columns: "a BIGINT, b BIGINT, k STRING, v INT",
        select: "SELECT a.id, b.id, a.k, b.v FROM a LEFT JOIN b ON a.k = b.k AND a.v / 10 = b.v / 10
            AND b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts + INTERVAL '2' SECOND",
    },
    Query {
        name: "join",
        inputs: 2,
        kind: Kind::Changes,
        columns: "a BIGINT, b BIGINT, k STRING, v INT",
        select: "SELECT a.id, b.id, a.k, b.v FROM a LEFT JOIN b ON a.id = b.id + b.v / 400",
    },
    Query {
        name: "groups",
        inputs: 1,
        kind: Kind::Changes,
        columns: "k STRING, n BIGINT, total INT, different BIGINT",
        select: "SELECT k, COUNT(*), SUM(v), COUNT(DISTINCT v) FROM a GROUP BY k",
    },
    Query {
        name: "first_rows",
        inputs: 1,
        kind: Kind::Changes,
        columns: "k STRING, id BIGINT, v INT, n BIGINT",
        select: "SELECT k, id, v, n FROM (
              SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, id) AS n FROM a
            ) WHERE n <= 3",
    },
    Query {
        name: "newest_row",
        inputs: 1,
        kind: Kind::Changes,
        columns: "k STRING, v INT, at TIMESTAMP(3)",
        select: "SELECT k, v, ts FROM (
              SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM a
            ) WHERE n = 1",
    },
    Query {
        name: "running_sums",
        inputs: 1,
        kind: Kind::Rows,
        columns: "id BIGINT, k STRING, total INT",
        select: "SELECT id, k, SUM(v) OVER (
              PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW
            ) FROM a",
    },
];

/// All cells.
pub fn cells() -> Vec<Cell> {
    let under = |query: Query| ORDERS.map(|order| Cell { query, order });
    QUERIES.into_iter().flat_map(under).collect()
}

impl Cell {
    pub fn name(&self) -> String {
        format!("{}-{}", self.query.name, self.order)
    }

    /// What must be the same with and without failures. The sequence in which the rows of two
    /// inputs arrive is an accident in `arrival`, and so is that of the results.
    pub fn equality(&self) -> Equality {
        let has_sequence = match self.order {
            "epoch" => false,
            "arrival" => self.query.inputs == 1,
            _ => true,
        };
        match (has_sequence, self.query.kind) {
            (true, _) => Equality::Sequence,
            (false, Kind::Rows) => Equality::Rows,
            (false, Kind::Changes) => Equality::Left,
        }
    }

    /// The script: inputs in the folders `a` and `b`, output in the folder `out`.
    pub fn script(&self) -> String {
        let Query { columns, select, kind, .. } = self.query;
        let sort = match self.order {
            "event_time" => format!(", 'source.sort-within' = '{DISORDER_MS} ms'"),
            _ => String::new(),
        };
        let table = |name: &str| {
            format!(
                "CREATE TABLE {name} (id BIGINT, k STRING, v INT, ts TIMESTAMP(3),
                   WATERMARK FOR ts AS ts - INTERVAL '{}' SECOND)
                 WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{name}'{sort});\n",
                DISORDER_MS / 1_000
            )
        };
        let changelog = if kind == Kind::Changes { ", 'changelog' = 'op'" } else { "" };
        format!(
            "SET 'pipeline.order' = '{}';\n{}{}CREATE TABLE result ({columns})
             WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = 'out/'{changelog});
             INSERT INTO result {select};\n",
            self.order,
            table("a"),
            table("b"),
        )
    }
}

impl Equality {
    /// Why an output is not the one that was expected; `None` if it is.
    pub fn difference(self, expected: &[String], found: &[String]) -> Option<String> {
        match self {
            Equality::Sequence => first_difference(expected, found),
            Equality::Rows => first_difference(&sorted(expected), &sorted(found)),
            Equality::Left => match (left(expected), left(found)) {
                (Ok(expected), Ok(found)) => first_difference(&expected, &found),
                (_, Err(why)) | (Err(why), _) => Some(why),
            },
        }
    }

    /// Why what is visible while a job runs is not a part of its output; `None` if it is.
    pub fn excess(self, expected: &[String], visible: &[String]) -> Option<String> {
        match self {
            Equality::Sequence => {
                let end = visible.len().min(expected.len());
                first_difference(&expected[..end], visible)
            }
            Equality::Rows => {
                let mut counts = BTreeMap::new();
                expected.iter().for_each(|row| *counts.entry(row).or_insert(0) += 1);
                visible.iter().for_each(|row| *counts.entry(row).or_insert(0) -= 1);
                counts
                    .into_iter()
                    .find(|&(_, count)| count < 0)
                    .map(|(row, _)| format!("'{row}' is visible too often"))
            }
            Equality::Left => left(visible).err(),
        }
    }
}

fn sorted(rows: &[String]) -> Vec<String> {
    let mut rows = rows.to_vec();
    rows.sort();
    rows
}

fn first_difference(expected: &[String], found: &[String]) -> Option<String> {
    let at = expected.iter().zip(found).position(|(expected, found)| expected != found);
    let at = match at {
        Some(at) => at,
        None if expected.len() == found.len() => return None,
        None => expected.len().min(found.len()),
    };
    Some(format!(
        "row {at} of {}: expected {:?}; row {at} of {}: found {:?}",
        expected.len(),
        expected.get(at),
        found.len(),
        found.get(at)
    ))
}

/// What is left when changes have been applied, sorted; an error if a row is retracted that is not
/// there.
fn left(changes: &[String]) -> Result<Vec<String>, String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        let (op, row) = change.split_once(',').ok_or_else(|| format!("change {at} has no op"))?;
        if op.starts_with('+') {
            *counts.entry(row).or_insert(0) += 1;
            continue;
        }
        match counts.get_mut(row) {
            Some(count) if *count > 0 => *count -= 1,
            _ => return Err(format!("change {at} retracts '{row}', which is not there")),
        }
    }
    let repeated = counts.into_iter().flat_map(|(row, count)| std::iter::repeat_n(row, count));
    Ok(repeated.map(str::to_owned).collect())
}
