//! Random tables: a few columns of random types, few distinct values, NULLs, duplicates, often no
//! rows at all. Rows are sorted by time, so that nothing is late.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use thalweg_core::shim::SplitMix64;

use crate::sql::Sql;

/// Random choices that a seed determines.
pub struct Dice(SplitMix64);

impl Dice {
    /// The choices of a seed.
    pub fn new(seed: u64) -> Dice {
        let mut random = SplitMix64::new(seed);
        random.next_u64();
        Dice(random)
    }
    /// A number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }
    /// True in this many of a hundred cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
    /// One of several.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// The types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// INT, and so small that sums of it fit.
    Int,
    /// BIGINT
    BigInt,
    /// DECIMAL
    Decimal,
    /// STRING
    String,
    /// BOOLEAN
    Boolean,
    /// TIMESTAMP(3)
    Time,
}

impl Kind {
    /// True for what can be added.
    pub fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::BigInt | Kind::Decimal)
    }

    fn type_name(self) -> Sql {
        match self {
            Kind::Int => Sql::one("INT"),
            Kind::BigInt => Sql::one("BIGINT"),
            Kind::Decimal => Sql::one("DECIMAL(10, 2)"),
            Kind::String => Sql::two("STRING", "VARCHAR"),
            Kind::Boolean => Sql::one("BOOLEAN"),
            Kind::Time => Sql::two("TIMESTAMP(3)", "TIMESTAMP"),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    null_percent: usize,
}

/// A table with its rows.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// `i`, which counts the rows, `ts`, and more.
    pub fields: Vec<Field>,
    /// Whether `ts` is a row time.
    pub is_timed: bool,
    rows: Vec<Vec<Option<String>>>,
}

impl Table {
    /// A table with at most this many rows.
    pub fn random(name: &'static str, rows_max: usize, dice: &mut Dice) -> Table {
        let mut kinds = vec![Kind::Int, Kind::Time, Kind::Int, Kind::String];
        for _ in 0..dice.below(4) {
            kinds.push(dice.pick(&[
                Kind::Int,
                Kind::BigInt,
                Kind::Decimal,
                Kind::String,
                Kind::Boolean,
            ]));
        }
        let fields: Vec<Field> = kinds
            .into_iter()
            .enumerate()
            .map(|(position, kind)| match position {
                0 => Field { name: "i".to_owned(), kind, null_percent: 0 },
                1 => Field { name: "ts".to_owned(), kind, null_percent: 0 },
                _ => Field {
                    name: format!("f{position}"),
                    kind,
                    null_percent: dice.pick(&[0, 15, 15, 50]),
                },
            })
            .collect();
        let count = if dice.percent(5) { 0 } else { rows_max / 4 + dice.below(rows_max) };
        let mut second = 100;
        let rows = (0..count)
            .map(|number| {
                second += dice.pick(&[0, 0, 1, 2, 7]);
                fields.iter().map(|field| value(field, number, second, dice)).collect()
            })
            .collect();
        Table { name, fields, is_timed: dice.percent(80), rows }
    }

    /// The declaration, and for DuckDB the rows.
    pub fn declaration(&self) -> Sql {
        let (mut ours, mut theirs) = (String::new(), String::new());
        for field in &self.fields {
            let kind = field.kind.type_name();
            let not_null = if field.null_percent == 0 { " NOT NULL" } else { "" };
            write!(ours, "{} {}{not_null}, ", field.name, kind.ours).expect("writing to a string");
            write!(theirs, "{} {}, ", field.name, kind.theirs).expect("writing to a string");
        }
        let mut ours = ours.trim_end_matches(", ").to_owned();
        if self.is_timed {
            ours.push_str(", WATERMARK FOR ts AS ts - INTERVAL '1' SECOND");
        }
        let (name, theirs) = (self.name, theirs.trim_end_matches(", "));
        let ours = format!(
            "CREATE TABLE {name} ({ours}) WITH ('connector' = 'filesystem', 'format' = 'csv', \
             'csv.null-literal' = '', 'path' = '{name}.csv');\n"
        );
        let theirs = format!("CREATE OR REPLACE TABLE {name} ({theirs}); {}", self.insertion());
        Sql::two(ours, theirs)
    }

    fn insertion(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let literal = |value: &Option<String>| match value {
            Some(text) => format!("'{text}'"),
            None => "NULL".to_owned(),
        };
        let row = |row: &Vec<Option<String>>| {
            format!("({})", row.iter().map(literal).collect::<Vec<_>>().join(", "))
        };
        let rows = self.rows.iter().map(row).collect::<Vec<_>>().join(", ");
        format!("INSERT INTO {} VALUES {rows};\n", self.name)
    }

    /// Writes the rows for Thalweg.
    pub fn write(&self, folder: &Path) {
        let mut text = String::new();
        for row in &self.rows {
            let values: Vec<&str> =
                row.iter().map(|value| value.as_deref().unwrap_or_default()).collect();
            text.push_str(&values.join(","));
            text.push('\n');
        }
        fs::write(folder.join(format!("{}.csv", self.name)), text).expect("writing a table");
    }
}

fn value(field: &Field, number: usize, second: usize, dice: &mut Dice) -> Option<String> {
    if dice.percent(field.null_percent) {
        return None;
    }
    Some(match (field.name.as_str(), field.kind) {
        ("i", _) => number.to_string(),
        (_, Kind::Time) => {
            format!("1970-01-01 00:{:02}:{:02}.000", second / 60, second % 60)
        }
        (_, Kind::Int | Kind::BigInt) => (dice.below(7) as i64 - 1).to_string(),
        (_, Kind::Decimal) => dice.pick(&["0.50", "1.25", "2.00", "-3.75", "2.01"]).to_owned(),
        (_, Kind::Boolean) => dice.pick(&["true", "false"]).to_owned(),
        (_, Kind::String) => dice.pick(&["x", "y", "z", "xy"]).to_owned(),
    })
}
