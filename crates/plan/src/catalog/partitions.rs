//! Buckets and partitions of definitions, and `ANALYZE TABLE`.
//!
//! Partitions that `ALTER TABLE … ADD PARTITION` names are a list in the catalog, as in Flink's:
//! `SHOW PARTITIONS` shows it. Which rows a table has is decided by the folders that are there.

use thalweg_core::quoting::quoted_name;
use thalweg_core::{Error, Result};

use super::{Catalog, RuntimeMode, TextRows};
use crate::ast::{AnalyzedColumns, CreateTable, Distribution, Name, PartitionValues};

impl CreateTable {
    pub(super) fn set_distribution(&mut self, new: &Distribution, replaces: bool) -> Result<()> {
        new.columns.iter().try_for_each(|column| self.position(column).map(drop))?;
        if self.distribution.is_some() != replaces {
            let (has, hint) = match replaces {
                true => ("has no distribution to modify", "write ADD in the place of MODIFY"),
                false => ("has a distribution already", "write MODIFY in the place of ADD"),
            };
            let error = Error::plan(format!("table {} {has}", self.name.text));
            return Err(error.hint(hint).at(new.span));
        }
        self.distribution = Some(new.clone());
        Ok(())
    }

    /// A partition with all columns of PARTITIONED BY, in their order.
    fn ordered(&self, partition: &PartitionValues) -> Result<PartitionValues> {
        self.check_partition_columns(partition.iter().map(|(name, _)| name))?;
        let value = |column: &Name| {
            let found = partition.iter().find(|(name, _)| name.text == column.text);
            found.cloned().ok_or_else(|| {
                let first = partition.first().map_or(self.name.span, |(name, _)| name.span);
                Error::plan(format!("the partition has no value for {}", column.text)).at(first)
            })
        };
        self.partitioned_by.iter().map(value).collect()
    }

    fn check_partition_columns<'n>(&self, names: impl Iterator<Item = &'n Name>) -> Result<()> {
        for name in names {
            if self.partitioned_by.is_empty() {
                return Err(Error::plan(format!("table {} has no partitions", self.name.text))
                    .hint("CREATE TABLE … PARTITIONED BY (…) says by what columns")
                    .at(name.span));
            }
            if !self.partitioned_by.iter().any(|by| by.text == name.text) {
                let error = Error::plan(format!(
                    "table {} is not partitioned by {}",
                    self.name.text, name.text
                ));
                return Err(error.at(name.span));
            }
        }
        Ok(())
    }

    pub(super) fn add_partitions(
        &mut self,
        partitions: &[PartitionValues],
        if_not_exists: bool,
    ) -> Result<()> {
        for partition in partitions {
            let partition = self.ordered(partition)?;
            match self.partitions.iter().any(|known| is_same(known, &partition)) {
                false => self.partitions.push(partition),
                true if if_not_exists => {}
                true => {
                    let shown = shown(&partition);
                    let error = format!("table {} has the partition {shown}", self.name.text);
                    return Err(Error::plan(error).at(place(&partition, self)));
                }
            }
        }
        Ok(())
    }

    pub(super) fn drop_partitions(
        &mut self,
        partitions: &[PartitionValues],
        if_exists: bool,
    ) -> Result<()> {
        for partition in partitions {
            let partition = self.ordered(partition)?;
            let before = self.partitions.len();
            self.partitions.retain(|known| !is_same(known, &partition));
            if self.partitions.len() == before && !if_exists {
                let shown = shown(&partition);
                let error = format!("table {} has no partition {shown}", self.name.text);
                return Err(Error::plan(error)
                    .hint("only those that ALTER TABLE … ADD PARTITION has named are known")
                    .at(place(&partition, self)));
            }
        }
        Ok(())
    }
}

fn place(partition: &PartitionValues, table: &CreateTable) -> thalweg_core::Span {
    partition.first().map_or(table.name.span, |(name, _)| name.span)
}

fn is_same(one: &PartitionValues, other: &PartitionValues) -> bool {
    one.iter().map(|(_, value)| value).eq(other.iter().map(|(_, value)| value))
}

/// `a=1/b=x`
fn shown(partition: &PartitionValues) -> String {
    let parts = partition.iter().map(|(name, value)| format!("{}={value}", name.text));
    parts.collect::<Vec<_>>().join("/")
}

impl Distribution {
    /// As it stands in CREATE TABLE.
    pub(super) fn rendered(&self) -> String {
        let mut text = "DISTRIBUTED".to_owned();
        if !self.columns.is_empty() {
            let names = self.columns.iter().map(|name| quoted_name(&name.text));
            let names = names.collect::<Vec<_>>().join(", ");
            text.push_str(&format!(" BY {}({names})", self.function.unwrap_or("")));
        }
        if let Some(buckets) = self.buckets {
            text.push_str(&format!(" INTO {buckets} BUCKETS"));
        }
        text
    }
}

impl Catalog {
    /// `SHOW PARTITIONS table [PARTITION (…)]`
    pub(super) fn show_partitions(&self, name: &Name, only: &PartitionValues) -> Result<TextRows> {
        let table = self.table_named(name)?;
        if table.partitioned_by.is_empty() {
            table.check_partition_columns(std::iter::once(name))?;
        }
        table.check_partition_columns(only.iter().map(|(name, _)| name))?;
        let is_wanted = |partition: &&PartitionValues| {
            only.iter().all(|(name, value)| {
                partition.iter().any(|(own, of_own)| own.text == name.text && of_own == value)
            })
        };
        let listed = table.partitions.iter().filter(is_wanted);
        let rows = listed.map(|partition| vec![shown(partition)]).collect();
        Ok(TextRows::new(&["partition name"], rows))
    }

    /// `ANALYZE TABLE`: what it names must be there. Nothing is computed, and a note says so.
    pub(super) fn analyze(
        &mut self,
        name: &Name,
        partition: &[Name],
        columns: &AnalyzedColumns,
    ) -> Result<()> {
        if self.settings().runtime_mode() == RuntimeMode::Streaming {
            return Err(Error::plan("ANALYZE TABLE is for batch mode, as in Flink")
                .hint("SET 'execution.runtime-mode' = 'batch' before, or leave it out")
                .at(name.span));
        }
        let table = self.table_named(name)?;
        table.check_partition_columns(partition.iter())?;
        if let AnalyzedColumns::Named(names) = columns {
            names.iter().try_for_each(|column| table.position(column).map(drop))?;
        }
        self.notes.push(format!(
            "ANALYZE TABLE {} has no effect: plans do not depend on statistics here",
            name.text
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::StatementKind;
    use crate::parser::parse_script;

    /// Carries out the statements; the rows that the last SHOW answers.
    fn answers(catalog: &mut Catalog, text: &str) -> Result<Vec<Vec<String>>> {
        let mut rows = Vec::new();
        for statement in parse_script(text)? {
            match &statement.kind {
                StatementKind::Show(show) => {
                    rows = catalog.show(show, &[], &Default::default())?.rows;
                }
                _ => drop(catalog.apply(&statement)?),
            }
        }
        Ok(rows)
    }

    fn catalog() -> Catalog {
        let mut catalog = Catalog::new();
        let tables = "CREATE TABLE p (n INT, day_ STRING, hour_ INT) PARTITIONED BY (day_, hour_)
            WITH ('connector' = 'print');
            CREATE TABLE b (k INT) DISTRIBUTED BY HASH(k) INTO 3 BUCKETS WITH ('connector' = 'print');";
        answers(&mut catalog, tables).expect("two tables");
        catalog
    }

    #[test]
    fn partitions_are_listed_until_they_are_dropped() {
        let mut catalog = catalog();
        let add = "ALTER TABLE p ADD PARTITION (hour_ = 1, day_ = 'a') PARTITION (day_ = 'b', hour_ = 2);";
        let all = answers(&mut catalog, &format!("{add} SHOW PARTITIONS p;")).expect("a list");
        assert_eq!(all, [["day_=a/hour_=1"], ["day_=b/hour_=2"]]);
        let some = answers(&mut catalog, "SHOW PARTITIONS p PARTITION (day_ = 'b');").expect("one");
        assert_eq!(some, [["day_=b/hour_=2"]]);
        let again = answers(&mut catalog, add).expect_err("they are there");
        assert!(again.message().contains("has the partition day_=a/hour_=1"), "{again}");
        let dropped = "ALTER TABLE p ADD IF NOT EXISTS PARTITION (day_ = 'a', hour_ = 1);
            ALTER TABLE p DROP PARTITION (day_ = 'a', hour_ = 1);
            ALTER TABLE p DROP IF EXISTS PARTITION (day_ = 'a', hour_ = 1); SHOW PARTITIONS p;";
        assert_eq!(answers(&mut catalog, dropped).expect("a list"), [["day_=b/hour_=2"]]);
    }

    #[test]
    fn partitions_and_statistics_that_cannot_be_are_refused() {
        let cases = [
            ("ALTER TABLE p ADD PARTITION (day_ = 'a')", "no value for hour_"),
            ("ALTER TABLE p ADD PARTITION (n = 1)", "is not partitioned by n"),
            ("ALTER TABLE p DROP PARTITION (day_ = 'a', hour_ = 1)", "has no partition day_=a"),
            ("SHOW PARTITIONS b", "has no partitions"),
            ("ANALYZE TABLE p COMPUTE STATISTICS", "is for batch mode"),
            (
                "SET 'execution.runtime-mode' = 'batch'; ANALYZE TABLE p COMPUTE STATISTICS FOR COLUMNS x",
                "has no column x",
            ),
            ("ALTER TABLE b ADD DISTRIBUTION INTO 2 BUCKETS", "has a distribution already"),
            ("ALTER TABLE p MODIFY DISTRIBUTION INTO 2 BUCKETS", "no distribution to modify"),
            ("ALTER TABLE p DROP DISTRIBUTION", "has no distribution"),
        ];
        for (text, part) in cases {
            let error = answers(&mut catalog(), text).expect_err(text);
            assert!(error.message().contains(part), "{text}: {error}");
            assert!(error.span().is_some(), "{text}: no place");
        }
    }

    #[test]
    fn a_distribution_is_part_of_the_declaration() {
        let mut catalog = catalog();
        let text = "ALTER TABLE b MODIFY DISTRIBUTION BY (k); SHOW CREATE TABLE b;";
        let shown = answers(&mut catalog, text).expect("a declaration")[0][0].clone();
        assert!(shown.contains("DISTRIBUTED BY (`k`)\nWITH"), "{shown}");
        let text = "CREATE TABLE c LIKE b; ALTER TABLE b DROP DISTRIBUTION; SHOW CREATE TABLE b;";
        let shown = answers(&mut catalog, text).expect("a declaration")[0][0].clone();
        assert!(!shown.contains("DISTRIBUTED"), "{shown}");
        let like = answers(&mut catalog, "SHOW CREATE TABLE c;").expect("a declaration");
        assert!(like[0][0].contains("DISTRIBUTED BY (`k`)"), "{like:?}");
    }
}
