//! Elements of all inputs brought into the sequence of a recording.
//!
//! **The invariant that makes it work:** only the input of the current step is asked for rows, and
//! what it brings beyond the step waits here; so each input waits with one bundle at most, and the
//! one that is asked is always the one that is waited for.
//!
//! Elements are cut where a step ends. Where they are cut does not show in the results.

use std::collections::VecDeque;

use thalweg_core::{Error, Result, Watermark};

use super::element::Element;
use super::marks::split_at;
use super::rows::slice;
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
        let input =
            |(source, name)| Input { source, name, waiting: VecDeque::new(), is_unwanted: false };
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
        let mut unwanted = self.inputs.iter_mut().filter(|input| input.is_unwanted);
        let found = unwanted.find_map(|input| Some((input.source, input.waiting.pop_front()?)));
        if found.is_some() {
            return Ok(found);
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

    /// These rows of the current step have passed, or the end of its input.
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
            Some(_) if !self.replay.is_complete => Err(Error::data(
                "the recorded run went no further than this: it was stopped, or it failed",
            )
            .hint("all that it had read was replayed; run without --replay to read on")),
            found => Ok(found),
        }
    }
}

/// Takes the first rows of an element.
fn cut(element: &mut Element, rows: usize) -> Element {
    let [bundle] = &mut element.bundles[..] else {
        unreachable!("an element that comes in with rows has one bundle")
    };
    let of_bundle = bundle.stamps.row_places.clone();
    let part = |from: usize, rows: usize| {
        let mut part = slice(bundle, from, rows);
        part.stamps.row_places = of_bundle.as_ref().map(|places| match element.marks {
            Some(_) => places.slice(from, rows),
            // Where edges meet, rows carry their place in the element.
            None => (0..rows as i64).collect(),
        });
        part
    };
    let (first, rest) = (part(0, rows), part(rows, bundle.num_rows() - rows));
    *bundle = rest;
    let place = of_bundle.map_or(0, |places| places[rows]);
    let (marks, behind) = split_at(&element.marks, place);
    element.marks = behind;
    Element { bundles: vec![first], marks, watermark: None, ..element.clone() }
}

fn other_data(what: String) -> Error {
    Error::data(format!("{what}: the inputs are not those of the recording"))
        .hint("replay over the data that the run was recorded with")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ordered::element::Passage;
    use crate::ordered::marks::Mark;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use std::sync::Arc;
    use thalweg_core::{Bundle, Stamps};

    fn element(numbers: std::ops::Range<i64>, watermark: Option<Watermark>) -> Element {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        let batch = RecordBatch::try_from_iter([("n", column)]).expect("one column");
        let bundles = vec![Bundle::new(batch, Stamps::first())];
        Element { passage: Passage::new(0, 0), bundles, marks: None, watermark, bytes: 0 }
    }

    fn end() -> Element {
        Element { bundles: Vec::new(), ..element(0..0, Some(Watermark::END)) }
    }

    /// Sources at the places 3 and 5.
    fn replaying(steps: &[(u32, u32)], is_complete: bool) -> Replaying {
        let steps = steps.iter().map(|&(input, rows)| Step { input, rows }).collect();
        let sources = [(3, "a".to_owned()), (5, "b".to_owned())];
        Replaying::new(Replay { steps, is_complete }, sources.into_iter())
    }

    fn passed(replaying: &mut Replaying) -> Vec<(usize, Vec<i64>, bool)> {
        let mut passed = Vec::new();
        while let Some((source, element)) = replaying.pop().expect("the recorded data") {
            let numbers = element.bundles.iter().flat_map(|bundle| {
                bundle.batch.column(0).as_primitive::<Int64Type>().values().to_vec()
            });
            passed.push((source, numbers.collect(), element.watermark.is_some()));
        }
        passed
    }

    #[test]
    fn elements_are_cut_and_wait_for_their_turn() {
        let mut replaying = replaying(&[(0, 2), (1, 1), (0, 3), (0, 0), (1, 0)], true);
        assert_eq!(replaying.source_in_turn(), Some(3));
        replaying.push(3, element(0..4, Some(Watermark(7))), false);
        assert_eq!(passed(&mut replaying), [(3, vec![0, 1], false)]);
        assert_eq!(replaying.source_in_turn(), Some(5));
        replaying.push(5, element(10..11, None), false);
        // The watermark stands behind the last row of the element that was cut.
        let expected = [(5, vec![10], false), (3, vec![2, 3], true)];
        assert_eq!(passed(&mut replaying), expected);
        replaying.push(3, element(4..5, None), false);
        replaying.push(3, end(), false);
        replaying.push(5, end(), false);
        let expected = [(3, vec![4], false), (3, vec![], true), (5, vec![], true)];
        assert_eq!(passed(&mut replaying), expected);
        assert_eq!(replaying.source_in_turn(), None);
    }

    #[test]
    fn marks_stay_behind_their_rows_where_an_element_is_cut() {
        let mark = |place, watermark| Mark { place, watermark: Watermark(watermark) };
        let cut_at = |rows| {
            let mut whole = element(0..5, Some(Watermark(9)));
            whole.bundles[0].stamps.row_places = Some(vec![0, 0, 1, 2, 2].into());
            whole.marks = Some([mark(0, 3), mark(1, 5)].into());
            let first = super::cut(&mut whole, rows);
            let of = |element: &Element| {
                let places = element.bundles[0].stamps.row_places.as_ref().expect("kept").to_vec();
                let marks = element.marks.as_ref().map_or(Vec::new(), |marks| marks.to_vec());
                (places, marks, element.watermark.is_some())
            };
            (of(&first), of(&whole))
        };
        let (first, rest) = cut_at(1);
        assert_eq!(first, (vec![0], vec![], false));
        assert_eq!(rest, (vec![0, 1, 2, 2], vec![mark(0, 3), mark(1, 5)], true));
        let (first, rest) = cut_at(2);
        assert_eq!(first, (vec![0, 0], vec![mark(0, 3)], false), "behind the last of its rows");
        assert_eq!(rest, (vec![1, 2, 2], vec![mark(1, 5)], true));
        let (first, rest) = cut_at(4);
        assert_eq!(first, (vec![0, 0, 1, 2], vec![mark(0, 3), mark(1, 5)], false));
        assert_eq!(rest, (vec![2], vec![], true));
    }

    #[test]
    fn other_data_are_noticed() {
        let mut short = replaying(&[(0, 5)], true);
        short.push(3, element(0..2, None), false);
        short.push(3, end(), false);
        assert!(short.pop().is_ok_and(|first| first.is_some()));
        let error = short.pop().err().expect("it ends too early");
        assert!(error.message().contains("'a' ends 3 rows too early"), "{error}");
        let mut long = replaying(&[(0, 2), (0, 0)], true);
        long.push(3, element(0..3, None), false);
        assert!(long.pop().is_ok_and(|first| first.is_some()));
        assert!(long.pop().is_err());
    }

    #[test]
    fn an_input_that_nobody_needs_holds_nothing_up() {
        let mut replaying = replaying(&[(0, 9), (1, 1), (0, 4), (1, 0)], true);
        replaying.push(3, end(), true);
        assert_eq!(passed(&mut replaying), [(3, vec![], true)]);
        assert_eq!(replaying.source_in_turn(), Some(5));
        replaying.push(5, element(0..1, None), false);
        replaying.push(5, end(), false);
        assert_eq!(passed(&mut replaying).len(), 2);
    }

    #[test]
    fn behind_a_run_that_was_stopped_there_is_nothing() {
        let mut stopped = replaying(&[(0, 1)], false);
        stopped.push(3, element(0..2, None), false);
        assert!(stopped.pop().is_ok_and(|first| first.is_some()));
        assert!(stopped.pop().is_err());
        let mut complete = replaying(&[(0, 1)], true);
        complete.push(3, element(0..2, None), false);
        assert_eq!(passed(&mut complete).len(), 2, "nobody needed the rest then");
    }
}
