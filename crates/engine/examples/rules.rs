//! Rules that come as a stream of their own and are applied to the events that follow: what SQL has
//! no words for.
//!
//! ```text
//! cargo run --release --example rules
//! ```
//! A rule says how much a user may spend within a time. Rules go to all processors (an edge that
//! broadcasts), and all of them come before the first event (an edge of a lower number). Events go
//! to the processor that owns their user. It keeps the state of its users itself, sets a timer for
//! each, and puts alarms out by one port, and the sums of users who are silent by another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg::pipeline::Pipeline;
use thalweg::rows::vertex::{Context, Edge, Entry, Inbox, Processor, SavedEntries};
use thalweg::rows::{CollectedRows, FiredTimer, Rows};
use thalweg::{Result, RunOptions};

/// After so long without an event a user's sum is reported and forgotten.
pub const SILENCE_MS: i64 = 1_000;

/// A user's sum must not be above a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its name, for alarms.
    pub name: String,
    /// The limit.
    pub limit: i64,
}

/// A user spends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in milliseconds.
    pub at_ms: i64,
    /// Who.
    pub user: u32,
    /// How much.
    pub amount: i64,
}

/// A rule is broken: (rule, user, sum so far).
pub type Alarm = (String, u32, i64);
/// A user is silent: (user, sum).
pub type Silent = (u32, i64);

/// What is kept of a user: the sum, and when the timer is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    sum: i64,
    timer_ms: Option<i64>,
}

/// What is saved: rules for all processors, users under their keys.
#[derive(Serialize, Deserialize)]
pub enum Saved {
    /// For all processors.
    Rule(Rule),
    /// Under the user's number.
    User(User),
}

/// The processor of a share of the users.
#[derive(Default)]
pub struct ApplyRules {
    rules: Vec<Rule>,
    users: BTreeMap<u32, User>,
    /// How many rules the event at the head of the inbox was compared with: where to continue.
    compared: usize,
}

impl ApplyRules {
    /// True if all alarms of an event have found room.
    fn apply(&mut self, event: &Event, context: &mut Context<'_, u32>) -> Result<bool> {
        let sum = self.users.get(&event.user).map_or(0, |user| user.sum) + event.amount;
        for rule in &self.rules[self.compared..] {
            let is_broken = sum > rule.limit;
            if is_broken && !context.offer(0, &(rule.name.clone(), event.user, sum))? {
                return Ok(false);
            }
            self.compared += 1;
        }
        self.compared = 0;
        let user = self.users.entry(event.user).or_default();
        user.sum = sum;
        if let Some(old_ms) = user.timer_ms.replace(event.at_ms + SILENCE_MS) {
            context.delete_timer(&event.user, old_ms);
        }
        context.set_timer(&event.user, event.at_ms + SILENCE_MS);
        Ok(true)
    }
}

impl Processor for ApplyRules {
    type Key = u32;
    type Saved = Saved;

    fn process(
        &mut self,
        input: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, u32>,
    ) -> Result<()> {
        if input == 0 {
            while let Some(rule) = inbox.take()? {
                self.rules.push(rule);
            }
            return Ok(());
        }
        while let Some(event) = inbox.peek()? {
            if !self.apply(&event, context)? {
                return Ok(());
            }
            inbox.remove();
        }
        Ok(())
    }

    fn timer(&mut self, user: &u32, _: FiredTimer, context: &mut Context<'_, u32>) -> Result<bool> {
        let sum = self.users.get(user).map_or(0, |user| user.sum);
        let is_taken = context.offer(1, &(*user, sum))?;
        if is_taken {
            self.users.remove(user);
        }
        Ok(is_taken)
    }

    fn save(&mut self, entries: &mut SavedEntries<u32, Saved>) -> Result<()> {
        self.rules.iter().for_each(|rule| entries.put_for_all(Saved::Rule(rule.clone())));
        self.users.iter().try_for_each(|(key, user)| entries.put(*key, Saved::User(user.clone())))
    }

    fn restore(&mut self, entry: Entry<u32, Saved>) -> Result<()> {
        match (entry.key, entry.value) {
            (Some(key), Saved::User(user)) => drop(self.users.insert(key, user)),
            (_, Saved::Rule(rule)) => self.rules.push(rule),
            (None, Saved::User(_)) => {}
        }
        Ok(())
    }
}

/// Applies rules to events: alarms, and the sums of silent users.
pub fn apply(
    pipeline: &Pipeline,
    rules: Rows<Rule>,
    events: Rows<Event>,
    outbox_items: usize,
) -> Result<(Rows<Alarm>, Rows<Silent>)> {
    let applied = pipeline
        .vertex("apply rules", |_| ApplyRules::default())
        .input(rules, Edge::broadcast().priority(-1))
        .input(events, Edge::partitioned(|event: &Event| event.user))
        .outbox_items(outbox_items)
        .outputs(2)?;
    Ok((applied.output(0)?, applied.output(1)?))
}

/// The same from memory, into memory.
pub fn apply_all(
    pipeline: &Pipeline,
    rules: Vec<Rule>,
    events: Vec<Event>,
    outbox_items: usize,
) -> Result<(CollectedRows<Alarm>, CollectedRows<Silent>)> {
    let rules = pipeline.read_rows("rules", rules);
    let events = pipeline.read_timed_rows("events", events, |event: &Event| event.at_ms, 0);
    let (alarms, silent) = apply(pipeline, rules, events, outbox_items)?;
    Ok((alarms.collect("alarms"), silent.collect("silent")))
}

#[allow(dead_code)] // The tests have a beginning of their own.
fn main() -> Result<()> {
    let rule = |name: &str, limit| Rule { name: name.to_owned(), limit };
    let event = |at_ms, user, amount| Event { at_ms, user, amount };
    let rules = vec![rule("much", 100), rule("very much", 1_000)];
    let events = vec![event(0, 1, 80), event(300, 2, 20), event(700, 1, 960), event(2_500, 2, 1)];
    let pipeline = Pipeline::new();
    let (alarms, silent) = apply_all(&pipeline, rules, events, 1_000)?;
    pipeline.run(RunOptions::default())?;
    for (rule, user, sum) in alarms.rows() {
        println!("user {user} has spent {sum}: {rule}");
    }
    for (user, sum) in silent.rows() {
        println!("user {user} is silent after {sum}");
    }
    Ok(())
}
