//! Places in what a server has that are texts of its own: identifiers of events, validators of an
//! answer. A message has a number, as [`crate::messaging`] wants it; here stands which place that
//! is, and a position of the source names both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use thalweg_core::connector::{Source, SourceLayer};
use thalweg_core::{Error, Result};

use crate::messaging::{Inbox, Mark, MessageSource};

/// The places of messages, by number. Clones are the same.
#[derive(Clone, Default)]
pub struct Places(Arc<Mutex<BTreeMap<Mark, Value>>>);

impl Places {
    fn places(&self) -> MutexGuard<'_, BTreeMap<Mark, Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Behind a message lies this place.
    pub fn set(&self, mark: Mark, place: Value) {
        self.places().insert(mark, place);
    }

    /// The place behind a message: its own, or that of the last one before it. Earlier ones are
    /// forgotten.
    fn at(&self, mark: Mark) -> Option<Value> {
        let mut places = self.places();
        let (&found, place) = places.range(..=mark).next_back()?;
        let place = place.clone();
        *places = places.split_off(&found);
        Some(place)
    }

    /// The place behind the last message that an inbox has received.
    pub fn last(&self, inbox: &Inbox) -> Option<Value> {
        let last = inbox.splits().first()?.last?;
        let places = self.places();
        places.range(..=last).next_back().map(|(_, place)| place.clone())
    }
}

/// The number of the next message.
pub fn next_mark(inbox: &Inbox) -> Mark {
    inbox.splits().first().and_then(|split| split.last).unwrap_or(0) + 1
}

/// A source of numbered messages whose positions name their places.
pub struct PlacedSource {
    /// The source.
    pub source: MessageSource,
    /// The places of its messages.
    pub places: Places,
}

impl SourceLayer for PlacedSource {
    fn inner(&self) -> &dyn Source {
        &self.source
    }

    fn inner_mut(&mut self) -> &mut dyn Source {
        &mut self.source
    }

    fn position(&self) -> Option<String> {
        let mut position: Value = serde_json::from_str(&self.source.position()?).ok()?;
        if let Some(place) = last_of(&position).and_then(|mark| self.places.at(mark)) {
            position["place"] = place;
        }
        Some(position.to_string())
    }

    fn seek(&mut self, position: &str) -> Result<()> {
        self.source.seek(position)?;
        let written: Value = serde_json::from_str(position)
            .map_err(|_| Error::user(format!("this is no position: {position}")))?;
        if let (Some(mark), Some(place)) = (last_of(&written), written.get("place")) {
            self.places.set(mark, place.clone());
        }
        Ok(())
    }
}

/// The last message of the only split.
fn last_of(position: &Value) -> Option<Mark> {
    position.get("splits")?.get(0)?.get("last")?.as_str()?.parse().ok()
}
