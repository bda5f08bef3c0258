//! Which bodies of rows a snapshot has: the part of a source's position that says it.
//!
//! Each run of a source numbers the bodies that it takes, in the order in which they reach the job.
//! So one number for each run says all: the snapshot has every body up to it, and none behind it.

use serde_json::{Value, json};

/// Where it is in a position.
const KEY: &str = "bodies";
/// Runs that are remembered. Only those count that have taken a body.
const RUNS_MAX: usize = 256;

/// How far the runs of a source have come that a snapshot continues, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenBodies(Vec<(String, u64)>);

impl TakenBodies {
    /// What the position of a source says. Other layers may have put something around it.
    pub fn of_position(position: &str) -> TakenBodies {
        fn find(value: &Value) -> Option<TakenBodies> {
            match value.get(KEY) {
                Some(bodies) => TakenBodies::from_json(bodies),
                None => find(value.get("inner")?),
            }
        }
        let value: Option<Value> = serde_json::from_str(position).ok();
        value.as_ref().and_then(find).unwrap_or_default()
    }

    /// The number of the last body of a run that the snapshot has; 0 if it has none.
    pub fn through(&self, run: &str) -> u64 {
        self.0.iter().find(|(known, _)| known == run).map_or(0, |(_, through)| *through)
    }

    /// A run has come so far.
    pub fn note(&mut self, run: &str, through: u64) {
        match self.0.last_mut().filter(|(known, _)| known == run) {
            Some((_, known)) => *known = through,
            None => {
                self.0.push((run.to_owned(), through));
                let first = self.0.len().saturating_sub(RUNS_MAX);
                self.0.drain(..first);
            }
        }
    }

    /// Puts it into a position, unless there is nothing to say.
    pub fn write_to(&self, position: &mut Value) {
        if !self.0.is_empty() {
            position[KEY] = json!(self.0);
        }
    }

    fn from_json(value: &Value) -> Option<TakenBodies> {
        let run = |own: &Value| Some((own.get(0)?.as_str()?.to_owned(), own.get(1)?.as_u64()?));
        value.as_array()?.iter().map(run).collect::<Option<Vec<_>>>().map(TakenBodies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_say_how_far_each_run_has_come() {
        let mut bodies = TakenBodies::default();
        let mut position = json!({ "delivered": [] });
        bodies.write_to(&mut position);
        assert_eq!(position, json!({ "delivered": [] }));
        for (run, through) in [("a", 3), ("a", 7), ("b", 1)] {
            bodies.note(run, through);
        }
        bodies.write_to(&mut position);
        for wrapped in [position.clone(), json!({ "rows": 2, "inner": position })] {
            let read = TakenBodies::of_position(&wrapped.to_string());
            assert_eq!(read, bodies, "{wrapped}");
            assert_eq!((read.through("a"), read.through("b"), read.through("c")), (7, 1, 0));
        }
        for other in ["", "{}", "{\"bodies\":[1]}", "{\"bodies\":[[\"a\"]]}", "[]"] {
            assert_eq!(TakenBodies::of_position(other), TakenBodies::default(), "{other}");
        }
    }

    #[test]
    fn the_oldest_runs_are_forgotten() {
        let mut bodies = TakenBodies::default();
        for run in 0..=RUNS_MAX {
            bodies.note(&run.to_string(), 5);
        }
        assert_eq!((bodies.through("0"), bodies.through("1")), (0, 5));
    }
}
