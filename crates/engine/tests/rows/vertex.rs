//! Graphs of processors: results at every number of workers, outboxes that refuse, inputs that come
//! first, watermarks of each input, timers of both kinds, and what is refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use thalweg::pipeline::Pipeline;
use thalweg::rows::vertex::{Context, Edge, Inbox, Processor, VertexContext};
use thalweg::rows::{FiredTimer, Rows, TimerKind};
use thalweg::{OrderContract, Result, RunOptions};
use thalweg_core::shim::SplitMix64;

use super::process::Running;
use rules::{Alarm, Event, Rule, SILENCE_MS, Silent};

#[path = "../../examples/rules.rs"]
mod rules;

fn options(workers: usize) -> RunOptions {
    RunOptions {
        workers,
        bundle_rows_max: 7,
        partitions_max: Some(256),
        pin_workers: false,
        ..RunOptions::default()
    }
}

fn sorted<T: Ord>(mut rows: Vec<T>) -> Vec<T> {
    rows.sort();
    rows
}

fn events(seed: u64) -> Vec<Event> {
    let mut random = SplitMix64::new(seed);
    let mut at_ms = 0;
    let mut event = |_| {
        at_ms += random.below(120) as i64;
        Event { at_ms, user: random.below(12) as u32, amount: random.below(100) as i64 }
    };
    (0..800).map(&mut event).collect()
}

fn some_rules() -> Vec<Rule> {
    let rule = |limit: i64| Rule { name: format!("above {limit}"), limit };
    [50, 100, 200, 400, 800].map(rule).into()
}

/// What a loop over the events gives.
fn applied_serially(events: &[Event]) -> (Vec<Alarm>, Vec<Silent>) {
    let (mut alarms, mut silent) = (Vec::new(), Vec::new());
    let mut users: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for event in events {
        // The watermark before an event is the time of the one before it.
        let (sum, _) = users.remove(&event.user).unwrap_or_default();
        let sum = sum + event.amount;
        let broken = some_rules().into_iter().filter(|rule| sum > rule.limit);
        alarms.extend(broken.map(|rule| (rule.name, event.user, sum)));
        users.insert(event.user, (sum, event.at_ms + SILENCE_MS));
        let over = |&(_, timer_ms): &(i64, i64)| timer_ms - 1 <= event.at_ms;
        silent.extend(users.extract_if(.., |_, user| over(user)).map(|(user, of)| (user, of.0)));
    }
    silent.extend(users.into_iter().map(|(user, of)| (user, of.0)));
    (alarms, sorted(silent))
}

#[test]
fn rules_are_there_before_events_and_timers_fire_at_every_number_of_workers() {
    let events = events(1);
    let (alarms, silent) = applied_serially(&events);
    assert!(alarms.len() > 100 && silent.len() > 30);
    for (workers, outbox_items) in [(1, 1), (2, 1), (4, 3), (2, 1000), (4, 1000)] {
        let pipeline = Pipeline::new();
        let (got_alarms, got_silent) =
            rules::apply_all(&pipeline, some_rules(), events.clone(), outbox_items)
                .expect("it fits");
        // In `arrival` timers fire behind the event that reached them, at every number of workers.
        let order = OrderContract::Arrival;
        pipeline.run(RunOptions { order, ..options(workers) }).expect("the job runs");
        assert_eq!(got_alarms.rows(), alarms, "{workers} workers, {outbox_items} items");
        assert_eq!(sorted(got_silent.rows()), silent, "{workers} workers, {outbox_items} items");
    }
}

/// Puts out the numbers below each number, and remembers where it was refused.
struct Below {
    next: u32,
    refused: Arc<AtomicUsize>,
}

impl Processor for Below {
    type Key = ();
    type Saved = ();

    fn process(
        &mut self,
        _: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, ()>,
    ) -> Result<()> {
        while let Some(number) = inbox.peek::<u32>()? {
            while self.next < number {
                if !context.offer(0, &(number, self.next))? {
                    assert!(context.is_full());
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                self.next += 1;
            }
            self.next = 0;
            inbox.remove();
        }
        Ok(())
    }
}

#[test]
fn a_processor_that_is_refused_is_called_again_where_it_stopped() {
    let numbers = [0, 5, 300, 1, 2000, 7];
    for order in [OrderContract::Epoch, OrderContract::Arrival, OrderContract::EventTime] {
        for (workers, outbox_items) in [(1, 1), (2, 3), (4, 1), (4, 1000)] {
            let pipeline = Pipeline::new();
            let refused = Arc::new(AtomicUsize::new(0));
            let of_processor = Arc::clone(&refused);
            let source =
                pipeline.read_timed_rows("numbers", numbers, |number| i64::from(*number), 3000);
            let below = pipeline
                .vertex("below", move |_| Below { next: 0, refused: of_processor.clone() })
                .input(source, Edge::partitioned(|number: &u32| *number))
                .outbox_items(outbox_items)
                .outputs(1)
                .expect("it fits")
                .output::<(u32, u32)>(0)
                .expect("a port")
                .collect("below");
            pipeline.run(RunOptions { order, ..options(workers) }).expect("the job runs");
            let rows = below.rows();
            for number in numbers {
                let of_number: Vec<u32> =
                    rows.iter().filter(|row| row.0 == number).map(|row| row.1).collect();
                let expected: Vec<u32> = (0..number).collect();
                assert_eq!(of_number, expected, "{order}, {workers} workers, {outbox_items} items");
            }
            assert!(refused.load(Ordering::Relaxed) > 0, "{outbox_items} items are few");
        }
    }
}

#[test]
fn one_item_that_becomes_very_many_is_put_out_in_parts() {
    let pipeline = Pipeline::new();
    let refused = Arc::new(AtomicUsize::new(0));
    let of_processor = Arc::clone(&refused);
    let below = pipeline
        .vertex("below", move |_| Below { next: 0, refused: of_processor.clone() })
        .input(pipeline.read_rows("numbers", [400_000_u32]), Edge::to_one())
        .outputs(1)
        .expect("it fits");
    let counted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&counted);
    below.output::<(u32, u32)>(0).expect("a port").for_each("count", move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    pipeline.run(options(2)).expect("the job runs");
    assert_eq!(counted.load(Ordering::Relaxed), 400_000);
    assert!(refused.load(Ordering::Relaxed) > 20);
}

/// Says in which order inputs come and end.
#[derive(Default)]
struct Sequence {
    seen: [u32; 2],
    ended: Vec<usize>,
    offered: usize,
}

impl Processor for Sequence {
    type Key = ();
    type Saved = ();

    fn process(
        &mut self,
        input: usize,
        inbox: &mut Inbox<'_>,
        _: &mut Context<'_, ()>,
    ) -> Result<()> {
        assert!(!self.ended.contains(&input), "no item comes behind the end");
        assert!(input == 0 || self.ended == [0], "the first input is consumed before");
        while let Some(_number) = inbox.take::<u32>()? {
            self.seen[input] += 1;
        }
        Ok(())
    }
    fn complete_input(&mut self, input: usize, context: &mut Context<'_, ()>) -> Result<bool> {
        // Twice, so that a small outbox refuses.
        while self.offered < 2 {
            if !context.offer(0, &(input as u32, self.seen[input]))? {
                return Ok(false);
            }
            self.offered += 1;
        }
        self.offered = 0;
        self.ended.push(input);
        Ok(true)
    }
    fn complete(&mut self, context: &mut Context<'_, ()>) -> Result<bool> {
        assert_eq!(self.ended, [0, 1]);
        context.offer(0, &(9_u32, self.seen[0] + self.seen[1]))
    }
}

#[test]
fn an_input_of_a_lower_number_is_consumed_whole_before_others() {
    for order in [OrderContract::Epoch, OrderContract::Arrival] {
        for (workers, outbox_items) in [(1, 1), (2, 100), (4, 1), (4, 100)] {
            let pipeline = Pipeline::new();
            let first = pipeline.read_rows("first", 0..2000_u32);
            let second = pipeline.read_rows("second", 0..5_u32);
            let ends = pipeline
                .vertex("sequence", |_| Sequence::default())
                .input(first, Edge::balanced().priority(-1))
                .input(second, Edge::broadcast())
                .partitions(3)
                .outbox_items(outbox_items)
                .outputs(1)
                .expect("it fits")
                .output::<(u32, u32)>(0)
                .expect("a port")
                .collect("ends");
            pipeline.run(RunOptions { order, ..options(workers) }).expect("the job runs");
            let rows = ends.rows();
            let of = |input: u32| rows.iter().filter(move |row| row.0 == input).map(|row| row.1);
            // Each processor says it twice of each input.
            assert_eq!((of(0).count(), of(0).sum::<u32>()), (6, 4000), "{order}, {workers}");
            assert_eq!((of(1).count(), of(1).sum::<u32>()), (6, 30), "{order}, {workers}");
            assert_eq!((of(9).count(), of(9).sum::<u32>()), (3, 2015), "{order}, {workers}");
        }
    }
}

/// Compares the watermarks of inputs with that of all.
struct Watermarks {
    of_inputs: [i64; 2],
    newest_ms: [i64; 2],
    ended: [bool; 2],
    calls: Arc<Mutex<[usize; 2]>>,
}

impl Processor for Watermarks {
    type Key = ();
    type Saved = ();

    fn process(
        &mut self,
        input: usize,
        inbox: &mut Inbox<'_>,
        _: &mut Context<'_, ()>,
    ) -> Result<()> {
        while let Some(at_ms) = inbox.take::<i64>()? {
            assert!(at_ms > self.of_inputs[input], "an item is not behind its input's watermark");
            self.newest_ms[input] = at_ms;
        }
        Ok(())
    }
    fn input_watermark(
        &mut self,
        input: usize,
        at_ms: i64,
        _: &mut Context<'_, ()>,
    ) -> Result<bool> {
        assert!(at_ms > self.of_inputs[input], "watermarks rise");
        self.of_inputs[input] = at_ms;
        self.calls.lock().expect("no panic")[0] += 1;
        Ok(true)
    }
    fn complete_input(&mut self, input: usize, _: &mut Context<'_, ()>) -> Result<bool> {
        self.ended[input] = true;
        Ok(true)
    }
    fn watermark(&mut self, at_ms: i64, context: &mut Context<'_, ()>) -> Result<bool> {
        let open = (0..2).filter(|&input| !self.ended[input]).map(|input| self.of_inputs[input]);
        assert!(open.min().is_none_or(|least| at_ms <= least), "{at_ms} of {:?}", self.of_inputs);
        assert_eq!(context.watermark_ms(), at_ms);
        self.calls.lock().expect("no panic")[1] += 1;
        Ok(true)
    }
}

#[test]
fn each_input_has_a_watermark_and_that_of_all_is_the_least() {
    for workers in [1, 2, 4] {
        let pipeline = Pipeline::new();
        let read = |name: &str, step: i64| {
            let times = (1..400).map(move |number| number * step);
            pipeline.read_timed_rows(name, times, |at_ms: &i64| *at_ms, 5)
        };
        let calls = Arc::new(Mutex::new([0, 0]));
        let of_processor = Arc::clone(&calls);
        let supplier = move |_: VertexContext| Watermarks {
            of_inputs: [i64::MIN; 2],
            newest_ms: [i64::MIN; 2],
            ended: [false; 2],
            calls: Arc::clone(&of_processor),
        };
        let outputs = pipeline
            .vertex("watermarks", supplier)
            .input(read("fast", 30), Edge::balanced())
            .input(read("slow", 7), Edge::balanced())
            .watermark_grid_ms(Some(100))
            .outputs(1)
            .expect("it fits");
        outputs.output::<u32>(0).expect("a port").for_each("none", |_| Ok(()));
        pipeline.run(options(workers)).expect("the job runs");
        let [of_inputs, of_all] = *calls.lock().expect("no panic");
        assert!(of_inputs > 60 && of_all > 20, "{of_inputs} and {of_all}, {workers} workers");
    }
}

/// Says in which partition it is.
struct Here {
    partition: u32,
    upstream: bool,
}

impl Processor for Here {
    type Key = u32;
    type Saved = ();

    fn process(
        &mut self,
        _: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, u32>,
    ) -> Result<()> {
        while let Some((number, from)) = inbox.peek::<(u32, u32)>()? {
            assert!(self.upstream || from == self.partition, "it stays where it was");
            if !context.offer(0, &(number, self.partition))? {
                return Ok(());
            }
            inbox.remove();
        }
        Ok(())
    }
}

#[test]
fn an_isolated_edge_leaves_items_where_they_are() {
    let pipeline = Pipeline::new();
    let numbers = (0..500).map(|number| (number, 0));
    let here = |upstream| {
        move |context: VertexContext| Here { partition: context.partition() as u32, upstream }
    };
    let first = pipeline
        .vertex("first", here(true))
        .input(
            pipeline.read_rows("numbers", numbers),
            Edge::partitioned(|item: &(u32, u32)| item.0),
        )
        .partitions(5)
        .outputs(1)
        .expect("it fits");
    let odd = first.output(0).expect("a port").filter("odd", |item: &(u32, u32)| item.0 % 2 == 1);
    let second = pipeline
        .vertex("second", here(false))
        .input(odd, Edge::isolated())
        .partitions(5)
        .outputs(1)
        .expect("it fits");
    let places = second.output::<(u32, u32)>(0).expect("a port").collect("places");
    let elsewhere: Rows<(u32, u32)> = pipeline.read_rows("elsewhere", [(1, 1)]);
    let refused = pipeline
        .vertex("third", here(false))
        .input(elsewhere.clone(), Edge::isolated())
        .outputs(1)
        .err()
        .expect("no vertex is in front of it");
    assert!(refused.to_string().contains("'input 0 of third' is isolated"), "{refused}");
    elsewhere.for_each("elsewhere", |_| Ok(()));
    pipeline.run(options(4)).expect("the job runs");
    let rows = places.rows();
    let partitions: std::collections::BTreeSet<u32> = rows.iter().map(|row| row.1).collect();
    assert_eq!((rows.len(), partitions.len()), (250, 5));
}

/// Counts the rows of a number until no more come for a while, in processing time.
#[derive(Default)]
struct Pauses {
    counts: BTreeMap<i64, (u32, i64)>,
}

const PAUSE_MS: i64 = 50;

impl Processor for Pauses {
    type Key = i64;
    type Saved = ();

    fn process(
        &mut self,
        _: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, i64>,
    ) -> Result<()> {
        while let Some(number) = inbox.take::<i64>()? {
            let at_ms = context.processing_time_ms()? + PAUSE_MS;
            let of_number = self.counts.entry(number).or_default();
            context.delete_processing_timer(&number, of_number.1);
            *of_number = (of_number.0 + 1, at_ms);
            context.set_processing_timer(&number, at_ms)?;
        }
        Ok(())
    }
    fn timer(
        &mut self,
        number: &i64,
        timer: FiredTimer,
        context: &mut Context<'_, i64>,
    ) -> Result<bool> {
        assert_eq!(timer.kind, TimerKind::ProcessingTime);
        let (count, at_ms) = self.counts[number];
        assert_eq!(at_ms, timer.time_ms);
        let is_taken = context.offer(0, &(*number, count))?;
        if is_taken {
            self.counts.remove(number);
        }
        Ok(is_taken)
    }
}

#[test]
fn timers_of_processing_time_fire_while_no_rows_come() {
    let running = Running::of(RunOptions::default(), |numbers| {
        let pipeline = numbers.pipeline().clone();
        let outputs = pipeline
            .vertex("pauses", |_| Pauses::default())
            .input(numbers, Edge::partitioned(|number: &i64| *number))
            .uses_processing_time()
            .outbox_items(1)
            .outputs(1);
        outputs.expect("it fits").output(0).expect("a port")
    });
    running.send(1);
    running.wait_for_rows(1);
    running.advance(30);
    [1, 2, 3].into_iter().for_each(|number| running.send(number));
    running.wait_for_rows(4);
    running.advance(60);
    let fired = sorted((0..3).map(|_| running.next()).collect::<Vec<_>>());
    assert_eq!(fired, [(1, 2), (2, 1), (3, 1)]);
    running.send(4);
    assert_eq!(running.end(), [], "timers of the clock do not fire at the end");
}

/// Does what processors must not.
struct Wrong(&'static str);

impl Processor for Wrong {
    type Key = ();
    type Saved = ();

    fn process(
        &mut self,
        _: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, ()>,
    ) -> Result<()> {
        match self.0 {
            "type" => drop(inbox.take::<String>()?),
            "offer" => drop(context.offer(0, &"text".to_owned())?),
            "port" => drop(context.offer(3, &1_u32)?),
            "clock" => drop(context.processing_time_ms()?),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn mistakes_name_the_vertex_and_the_port() {
    let mistakes = [
        ("type", "'wrong', input 0: items are of type u32, not alloc::string::String"),
        ("offer", "'wrong', port 0: items are of type u32, not alloc::string::String"),
        ("port", "'wrong' has 1 ports, and no port 3"),
        ("clock", "'wrong' asks for the time of the clock"),
        ("leave", "'wrong' leaves items of input 0 though its outbox has refused none"),
    ];
    for (mistake, message) in mistakes {
        let pipeline = Pipeline::new();
        let outputs = pipeline
            .vertex("wrong", move |_| Wrong(mistake))
            .input(pipeline.read_rows("numbers", [1_u32]), Edge::to_one())
            .outputs(1)
            .expect("it fits");
        outputs.output::<u32>(0).expect("a port").for_each("none", |_| Ok(()));
        let error = pipeline.run(options(1)).expect_err("a mistake");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn graphs_that_do_not_fit_are_refused() {
    let pipeline = Pipeline::new();
    let none = pipeline.vertex("none", |_| Wrong("")).outputs(1).err().expect("no input");
    assert!(none.to_string().contains("'none' has no inputs"), "{none}");
    let numbers = pipeline.read_rows("numbers", [1_u32]).shared();
    let circle = pipeline
        .vertex("circle", |_| Wrong(""))
        .input(numbers.clone(), Edge::to_one().priority(-1))
        .input(numbers.clone(), Edge::to_one())
        .outputs(1)
        .err()
        .expect("the source waits for itself");
    assert!(circle.to_string().contains("'numbers' feeds 'tap 0 of circle'"), "{circle}");
    let pipeline = Pipeline::new();
    let read = |name| pipeline.read_timed_rows(name, [1_u32], |_: &u32| 0, 0);
    let outputs = pipeline
        .vertex("by time", |_| Wrong(""))
        .input(read("one"), Edge::to_one().priority(-1))
        .input(read("other"), Edge::to_one())
        .outputs(1)
        .expect("it fits other orders");
    outputs.output::<u32>(0).expect("a port").for_each("none", |_| Ok(()));
    assert!(outputs.output::<u32>(1).is_err() && outputs.output::<i8>(0).is_err());
    let order = OrderContract::EventTime;
    let refused = pipeline.run(RunOptions { order, ..options(1) }).expect_err("by time");
    assert!(
        refused.to_string().contains("'by time' consumes an input before another"),
        "{refused}"
    );
}
