//! Random graphs in which one split is the slowest: `why` names it.
//!
//! The oracle walks every way from every split to the sink and adds up what stages on it hold back,
//! while `why` goes one way, from the sink, by levels.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use thalweg_monitoring::reading::{
    JobReading, SourceReading, SplitReading, StageKind, StageReading,
};
use thalweg_monitoring::why::{watermarks, why_sink};

/// A graph: per source its splits, per stage its inputs and what it holds back.
#[derive(Clone, Debug)]
struct RandomGraph {
    sources: Vec<Vec<RandomSplit>>,
    stages: Vec<RandomStage>,
    /// The split that is made the slowest, as a share of all that count.
    slowest: usize,
    slower_by_ms: i64,
}

#[derive(Clone, Debug)]
struct RandomSplit {
    watermark: i64,
    is_idle: bool,
    has_ended: bool,
}

#[derive(Clone, Debug)]
struct RandomStage {
    /// As shares of the stages before it.
    inputs: Vec<usize>,
    held_back_ms: i64,
}

fn graphs() -> impl Strategy<Value = RandomGraph> {
    let split = (0..1_000_000_i64, 0..10_u8).prop_map(|(watermark, fate)| RandomSplit {
        watermark,
        is_idle: fate == 0,
        has_ended: fate == 1,
    });
    let source = proptest::collection::vec(split, 1..5);
    let held_back_ms = prop_oneof![3 => Just(0), 1 => 0..100_000_i64];
    let inputs = proptest::collection::vec(any::<usize>(), 1..4);
    let stage = (inputs, held_back_ms)
        .prop_map(|(inputs, held_back_ms)| RandomStage { inputs, held_back_ms });
    (
        proptest::collection::vec(source, 1..5),
        proptest::collection::vec(stage, 1..8),
        any::<usize>(),
        1..1_000_i64,
    )
        .prop_map(|(sources, stages, slowest, slower_by_ms)| RandomGraph {
            sources,
            stages,
            slowest,
            slower_by_ms,
        })
}

impl RandomGraph {
    /// The job, whose last stage is a sink.
    fn reading(&self) -> JobReading {
        let mut stages: Vec<StageReading> = Vec::new();
        for (place, splits) in self.sources.iter().enumerate() {
            stages.push(source_stage(place, splits));
        }
        for (number, stage) in self.stages.iter().enumerate() {
            let place = stages.len();
            let mut inputs: Vec<usize> = stage.inputs.iter().map(|share| share % place).collect();
            inputs.sort_unstable();
            inputs.dedup();
            let is_last = number + 1 == self.stages.len();
            stages.push(StageReading {
                name: format!("stage {place}"),
                kind: if is_last { StageKind::Sink } else { StageKind::Operator },
                inputs,
                held_back_ms: if is_last { 0 } else { stage.held_back_ms },
                ..StageReading::default()
            });
        }
        JobReading { at_ms: 2_000_000, stages, ..JobReading::default() }
    }
}

fn source_stage(place: usize, splits: &[RandomSplit]) -> StageReading {
    let splits: Vec<SplitReading> = splits
        .iter()
        .enumerate()
        .map(|(number, split)| SplitReading {
            name: format!("{place}-{number}"),
            watermark: Some(split.watermark),
            is_idle: split.is_idle,
            has_ended: split.has_ended,
            ..SplitReading::default()
        })
        .collect();
    let counting = splits.iter().filter(|split| split.counts());
    let watermark = counting.filter_map(|split| split.watermark).min();
    let source = SourceReading {
        has_time: true,
        has_ended: splits.iter().all(|split| split.has_ended),
        is_idle: splits.iter().all(|split| !split.counts()),
        splits,
        ..SourceReading::default()
    };
    StageReading {
        name: format!("source {place}"),
        kind: StageKind::Source,
        watermark,
        source: Some(source),
        ..StageReading::default()
    }
}

/// The most that any way from each source to the sink holds back; nothing where there is none.
fn most_held_back(reading: &JobReading, sink: usize) -> Vec<Option<i64>> {
    let mut most: Vec<Option<i64>> = vec![None; reading.stages.len()];
    walk(reading, sink, 0, &mut most);
    most
}

fn walk(reading: &JobReading, place: usize, held_back_ms: i64, most: &mut [Option<i64>]) {
    let stage = &reading.stages[place];
    let held_back_ms = held_back_ms + stage.held_back_ms;
    most[place] = most[place].max(Some(held_back_ms));
    stage.inputs.iter().for_each(|&input| walk(reading, input, held_back_ms, most));
}

/// Makes one split that counts and reaches the sink the slowest. Its place, if there is such a one.
fn make_slowest(reading: &mut JobReading, graph: &RandomGraph) -> Option<(usize, usize)> {
    let sink = reading.stages.len() - 1;
    let most = most_held_back(reading, sink);
    let mut reached = Vec::new();
    for (place, stage) in reading.stages.iter().enumerate() {
        let Some((source, most_ms)) = stage.source.as_ref().zip(most[place]) else { continue };
        for (number, split) in source.splits.iter().enumerate().filter(|(_, of)| of.counts()) {
            reached.push((
                place,
                number,
                split.watermark.expect("all have one") - most_ms,
                most_ms,
            ));
        }
    }
    let &(place, number, ..) = reached.get(graph.slowest.checked_rem(reached.len())?)?;
    let least = reached.iter().map(|&(_, _, level, _)| level).min()?;
    let most_ms = most[place]?;
    let watermark = least + most_ms - graph.slower_by_ms;
    let stage = &mut reading.stages[place];
    stage.watermark = Some(watermark);
    stage.source.as_mut()?.splits[number].watermark = Some(watermark);
    Some((place, number))
}

fn check(graphs_max: u32) {
    let config = Config { cases: graphs_max, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let named = Cell::new(0);
    let checked = runner.run(&graphs(), |graph| {
        let mut reading = graph.reading();
        let sink = reading.stages.len() - 1;
        let Some((place, number)) = make_slowest(&mut reading, &graph) else { return Ok(()) };
        let why = why_sink(&reading, sink);
        prop_assert_eq!(why.holder.stage, place);
        prop_assert_eq!(why.holder.split.as_ref().map(|(split, _)| *split), Some(number));
        prop_assert_eq!(why.path.first(), Some(&sink));
        prop_assert_eq!(&watermarks(&reading).stages[sink].held_by, &why.holder);
        let without = why.without.expect("a split holds");
        let gain_ms = without.gain_ms.unwrap_or(i64::MAX);
        prop_assert!(gain_ms >= graph.slower_by_ms, "without it all of that is gained");
        named.set(named.get() + 1);
        Ok(())
    });
    checked.expect("why names the slowest split");
    let named = named.get();
    assert!(named > graphs_max / 2, "{named} of {graphs_max} graphs had a split to name");
}

#[test]
fn the_slowest_split_of_a_hundred_thousand_random_graphs_is_named() {
    check(100_000);
}
