//! The promises about the order of results.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// What a pipeline promises about the sequence of its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OrderContract {
    /// Each result is exact and complete, watermarks arrive in order, and rows between two
    /// watermarks come in any order (StreamBox).
    #[default]
    Epoch,
    /// The output sequence equals what one thread would produce that takes one row at a time, in
    /// arrival order (Prasaad et al.).
    Arrival,
    /// Inputs sorted by time are merged by (time, input, position); everything behind is as in
    /// `Arrival` (Viper).
    EventTime,
}

impl OrderContract {
    /// True if the output sequence is promised.
    pub fn is_ordered(self) -> bool {
        self != OrderContract::Epoch
    }

    /// How many partitions a keyed operator has for each of several workers, unless the job says
    /// otherwise.
    ///
    /// Each partition takes a piece of each bundle and sends a bundle of its own on, so pieces
    /// multiply by their number from one operator to the next. Where an order is promised all that
    /// came of a bundle gets together again behind each operator, and with more partitions workers
    /// are less in each other's way.
    pub fn partitions_of_worker(self) -> usize {
        if self.is_ordered() { 4 } else { 2 }
    }
}

impl fmt::Display for OrderContract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OrderContract::Epoch => "epoch",
            OrderContract::Arrival => "arrival",
            OrderContract::EventTime => "event_time",
        })
    }
}

impl FromStr for OrderContract {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.trim().to_ascii_lowercase().as_str() {
            "epoch" => Ok(OrderContract::Epoch),
            "arrival" => Ok(OrderContract::Arrival),
            "event_time" => Ok(OrderContract::EventTime),
            other => Err(Error::plan(format!("'{other}' is no order contract"))
                .hint("choose 'epoch', 'arrival' or 'event_time'")),
        }
    }
}
