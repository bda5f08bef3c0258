//! What the last snapshot of a job says to whoever takes the job over.

use std::collections::BTreeMap;

use serde_json::Value;
use thalweg_core::snapshot::StageState;
use thalweg_core::{Error, Result, Watermark};
use thalweg_plan::flink_move::Offsets;
use thalweg_state::{SnapshotDetails, TableSummary};

/// Where a job has stopped.
#[derive(Debug, PartialEq)]
pub struct StoppedJob {
    /// Windows that end at or before it were written. None if no operator waits for one.
    pub watermark_ms: Option<i64>,
    /// The next offset of each partition, by table.
    positions: BTreeMap<String, Vec<Offsets>>,
}

impl StoppedJob {
    /// Reads the description of a snapshot; `is_by_watermark` says whether a watermark is needed.
    ///
    /// # Errors
    /// If the job has ended, or has seen no watermark, or its outputs stand at different ones.
    pub fn of(
        snapshot: &SnapshotDetails,
        outputs: usize,
        is_by_watermark: bool,
    ) -> Result<StoppedJob> {
        if snapshot.header.is_complete {
            return Err(Error::plan("the input of the job has ended: nothing is left to move"));
        }
        let mut positions: BTreeMap<String, Vec<Offsets>> = BTreeMap::new();
        for stage in &snapshot.stages {
            let position = stage.source.as_ref().and_then(|source| source.position.as_deref());
            if let Some(offsets) = position.and_then(offsets_of) {
                positions.entry(stage.name.clone()).or_default().push(offsets);
            }
        }
        let watermark_ms = match is_by_watermark {
            true => watermark(&snapshot.stages, outputs)?,
            false => None,
        };
        Ok(StoppedJob { watermark_ms, positions })
    }

    /// Where the job has stopped in each of its topics.
    ///
    /// # Errors
    /// As [`StoppedJob::next`].
    pub fn all(&self) -> Result<BTreeMap<String, Offsets>> {
        let next = |table: &String| Ok((table.clone(), self.next(table)?));
        self.positions.keys().map(next).collect()
    }

    /// The next offset of each partition of a table that is read from there on.
    ///
    /// # Errors
    /// If the job has not read it, or reads it twice and not equally far.
    pub fn next(&self, table: &str) -> Result<Offsets> {
        let known = self.known(table)?;
        match known.iter().all(|offsets| offsets == &known[0]) {
            true => Ok(known[0].clone()),
            false => {
                Err(Error::plan(format!("the job reads '{table}' twice, and not equally far"))
                    .hint("start it, and stop it when it has caught up"))
            }
        }
    }

    /// Behind the last row of each partition that any reader of the table has read.
    ///
    /// # Errors
    /// If the job has not read it.
    pub fn ends(&self, table: &str) -> Result<Offsets> {
        let mut ends = Offsets::new();
        for (partition, offset) in self.known(table)?.iter().flatten() {
            let end = ends.entry(*partition).or_insert(*offset);
            *end = (*end).max(*offset);
        }
        Ok(ends)
    }

    fn known(&self, table: &str) -> Result<&[Offsets]> {
        let found =
            self.positions.get(table).filter(|known| known.iter().any(|one| !one.is_empty()));
        found.map(Vec::as_slice).ok_or_else(|| {
            Error::plan(format!("the snapshot has no offsets of the table '{table}'")).hint(
                "the job has read nothing of it: submit it to Flink, there is nothing to move",
            )
        })
    }
}

/// The watermark of the operators. What leads to one output may be ahead of it, and waits there.
fn watermark(stages: &[StageState<Vec<TableSummary>>], outputs: usize) -> Result<Option<i64>> {
    let is_operator = |stage: &&StageState<Vec<TableSummary>>| {
        stage.source.is_none() && stage.sink.is_none() && !stage.ended
    };
    let operators = stages.iter().filter(is_operator);
    let joint: Vec<Watermark> =
        operators.filter_map(|stage| stage.inputs.as_ref()).map(|inputs| inputs.joint).collect();
    let Some(least) = joint.iter().min().copied() else { return Ok(None) };
    if outputs > 1 && joint.iter().any(|watermark| *watermark != least) {
        return Err(Error::plan("the outputs of the job stand at different watermarks")
            .hint("put each INSERT into a file of its own, and move one after the other"));
    }
    match least {
        Watermark::MIN => {
            Err(Error::plan("the job has seen no watermark yet: it has written nothing")
                .hint("submit it to Flink: there is nothing to move"))
        }
        Watermark::END => Err(Error::plan(
            "the job was drained: its windows are final, and nothing is left to move",
        )),
        Watermark(at_ms) => Ok(Some(at_ms)),
    }
}

/// The offsets in a position of the connector `kafka`; none if it is one of another connector.
fn offsets_of(position: &str) -> Option<Offsets> {
    let value: Value = serde_json::from_str(position).ok()?;
    let part = |part: &Value| {
        let partition = i32::try_from(part["partition"].as_i64()?).ok()?;
        Some((partition, part["offset"].as_i64()?))
    };
    value["partitions"].as_array()?.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_from_a_position_in_topics_alone() {
        let position = r#"{"partitions":[{"topic":"t","partition":0,"offset":4},{"topic":"t","partition":1,"offset":0}]}"#;
        assert_eq!(offsets_of(position), Some(Offsets::from([(0, 4), (1, 0)])));
        assert_eq!(offsets_of(r#"{"file":"a.csv","row":3}"#), None);
        assert_eq!(offsets_of("12"), None);
    }

    #[test]
    fn a_table_that_is_read_twice_is_read_on_only_if_equally_far() {
        let positions = |second: i64| {
            let known = vec![Offsets::from([(0, 4)]), Offsets::from([(0, second)])];
            StoppedJob { watermark_ms: None, positions: BTreeMap::from([("t".to_owned(), known)]) }
        };
        assert_eq!(positions(4).next("t").expect("equal"), Offsets::from([(0, 4)]));
        assert!(positions(5).next("t").is_err());
        assert_eq!(positions(5).ends("t").expect("read"), Offsets::from([(0, 5)]));
        assert!(positions(5).ends("u").expect_err("not read").message().contains("'u'"));
    }
}
