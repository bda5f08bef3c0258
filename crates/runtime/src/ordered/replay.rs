//! Elements of all inputs brought into the sequence of a recording.
//!
//! **The invariant that makes it work:** only the input of the current step is asked for rows, and
//! what it brings beyond the step waits here; so each input waits with one bundle at most, and the
//! one that is asked is always the one that is waited for.
//!
//! Elements are cut where a step ends. Where they are cut does not show in the results.

use std::collections::VecDeque;

use thalweg_core::{Error, Result, Watermark};

use super::Element;
use super::ingest::slice;
use crate::interleaving::{Replay, Step};

/// Elements on their way into the recorded sequence.
pub(crate) struct Replaying {
    replay: Replay,
    /// The current step, and how many of its rows have passed.
    next: usize,
    passed_rows: u32,
    inputs: Vec<Input>,
}

struct Input {
    /// The place of the source among the stages.
    source: usize,
    name: String,
    waiting: VecDeque<Element>,
    /// Nobody needs its rows any more.
    is_unwanted: bool,
}

impl Replaying {
    /// A replay over these sources, given by place and name.
    pub(crate) fn new(replay: Replay, sources: impl Iterator<Item = (usize, String)>) -> Self {
        let input = |(source, name)| Input {
            source,
            name,
            waiting: VecDeque::new(),
            is_unwanted: false,
        };
        Replaying { replay, next: 0, passed_rows: 0, inputs: sources.map(input).collect() }
    }

    /// The source whose turn it is; `None` behind the last step, when each may come.
    pub(crate) fn source_in_turn(&self) -> Option<usize> {
        let step = self.current()?;
        self.inputs.get(step.input as usize).map(|input| input.source)
    }

    /// An element has come in. `is_unwanted`: nobody needs rows of this source any more.
    pub(crate) fn push(&mut self, source: usize, element: Element, is_unwanted: bool) {
        let input = self.inputs.iter_mut().find(|input| input.source == source);
        let input = input.expect("every source has an input");
        input.waiting.push_back(element);
        input.is_unwanted |= is_unwanted;
    }

    /// The next element in the recorded sequence, with its source, if it is here.
    pub(crate) fn pop(&mut self) -> Result<Option<(usize, Element)>> {
        if let Some(input) = self.inputs.iter_mut().find(|input| input.is_unwanted)
            && let Some(element) = input.waiting.pop_front()
        {
            return Ok(Some((input.source, element)));
        }
        let Some(step) = self.current() else { return self.pop_behind() };
        let rows_left = step.rows - self.passed_rows;
        let Some(input) = self.inputs.get_mut(step.input as usize) else {
            return Err(other_data(format!("there is no input {}", step.input)));
        };
        let Some(element) = input.waiting.front_mut() else { return Ok(None) };
        let rows: usize = element.bundles.iter().map(|bundle| bundle.num_rows()).sum();
        let has_ended = rows == 0 && element.watermark == Some(Watermark::END);
        if has_ended && step.rows > 0 {
            let ended = format!("input '{}' ends {rows_left} rows too early", input.name);
            return Err(other_data(ended));
        }
        if rows > 0 && step.rows == 0 {
            return Err(other_data(format!("input '{}' does not end where it did", input.name)));
        }
        let first = match rows > rows_left as usize {
            true => cut(element, rows_left as usize),
            false => input.waiting.pop_front().expect("seen above"),
        };
        let source = input.source;
        self.pass(rows.min(rows_left as usize) as u32, has_ended);
        Ok(Some((source, first)))
    }

    /// The current step of an input that is still needed.
    fn current(&self) -> Option<Step> {
        let is_needed = |step: &&Step| {
            let input = self.inputs.get(step.input as usize);
            input.is_none_or(|input| !input.is_unwanted)
        };
        self.replay.steps[self.next..].iter().find(is_needed).copied()
    }

    /// So many rows of the current step have passed, or the end of its input.
    fn pass(&mut self, rows: u32, has_ended: bool) {
        while self.inputs[self.replay.steps[self.next].input as usize].is_unwanted {
            self.next += 1;
            self.passed_rows = 0;
        }
        self.passed_rows += rows;
        let is_done = self.passed_rows == self.replay.steps[self.next].rows;
        if is_done && (rows > 0 || has_ended) {
            self.next += 1;
            self.passed_rows = 0;
        }
    }

    /// Behind the last step only inputs are left that nobody needed when the run was recorded.
    fn pop_behind(&mut self) -> Result<Option<(usize, Element)>> {
        let mut inputs = self.inputs.iter_mut();
        let found = inputs.find_map(|input| Some((input.source, input.waiting.pop_front()?)));
        match found {
            Some(_) if !self.replay.is_complete => {
                Err(Error::data("the recorded run went no further than this: it was stopped, or it failed")
                    .hint("all that it had read was replayed; run without --replay to read on"))
            }
            found => Ok(found),
        }
    }
}

/// Takes the first rows of an element.
fn cut(element: &mut Element, rows: usize) -> Element {
    let [bundle] = &mut element.bundles[..] else {
        unreachable!("an element that comes in with rows has one bundle")
    };
    let (first, rest) = (slice(bundle, None, 0, rows), bundle.num_rows() - rows);
    *bundle = slice(bundle, None, rows, rest);
    Element { bundles: vec![first], watermark: None, ..element.clone() }
}

fn other_data(what: String) -> Error {
    Error::data(format!("{what}: the inputs are not those of the recording"))
        .hint("replay over the data that the run was recorded with")
}
