//! A connection that is opened again after it has broken.

use std::time::Duration;

use thalweg_core::connector::Trouble;
use thalweg_core::{Error, Result};

use super::connection::Connection;
use super::failure::{Failure, Outcome};
use super::settings::Settings;
use crate::network::{Backoff, Cancel};

/// A connection that is opened when it is needed, and again after it has broken.
pub struct Session {
    settings: Settings,
    cancel: Cancel,
    connection: Option<Connection>,
    backoff: Backoff,
    give_up_after: Duration,
    /// Run on each new connection.
    opening: Option<String>,
    /// What goes wrong and is tried again.
    trouble: Trouble,
}

impl Session {
    /// A session that gives up when the server could not be used for this long.
    pub fn new(settings: Settings, cancel: Cancel, give_up_after: Duration) -> Session {
        Session {
            settings,
            cancel,
            connection: None,
            backoff: Backoff::default(),
            give_up_after,
            opening: None,
            trouble: Trouble::default(),
        }
    }

    /// Runs these statements on each new connection.
    #[must_use]
    pub fn with_opening(mut self, sql: String) -> Session {
        self.opening = Some(sql);
        self
    }

    /// Says what goes wrong there.
    #[must_use]
    pub fn with_trouble(mut self, trouble: Trouble) -> Session {
        self.trouble = trouble;
        self
    }

    /// What goes wrong and is tried again.
    pub fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// Ends the work.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.connection = None;
    }

    /// Calls the server once, over a new connection where there is none.
    ///
    /// # Errors
    /// If the server can't be reached, or the call fails.
    pub fn try_call<T>(
        &mut self,
        call: &mut dyn FnMut(&mut Connection) -> Outcome<T>,
    ) -> Outcome<T> {
        if self.connection.is_none() {
            let mut connection = Connection::open(&self.settings, &self.cancel)?;
            if let Some(sql) = &self.opening {
                connection.execute(sql)?;
            }
            self.connection = Some(connection);
        }
        let connection = self.connection.as_mut().expect("opened above");
        let result = call(connection);
        // A failure that is not the server's answer may leave half a conversation behind.
        if connection.is_broken() || matches!(&result, Err(failure) if failure.code().is_empty()) {
            self.connection = None;
        }
        result
    }

    /// Calls the server, again and again where the connection breaks or the server can't serve it
    /// for the moment: the call must do no harm when it is repeated. `doing` is what errors say.
    ///
    /// # Errors
    /// If the call fails for good, or the server could not be used for too long.
    pub fn call<T>(
        &mut self,
        doing: &str,
        call: &mut dyn FnMut(&mut Connection) -> Outcome<T>,
    ) -> Result<T> {
        loop {
            let failure = match self.try_call(call) {
                Ok(value) => {
                    self.succeeded();
                    return Ok(value);
                }
                Err(failure) => failure,
            };
            let failure = self.pause_after(failure);
            if let Err(failure) = failure {
                return Err(self.explained(failure, doing));
            }
        }
    }

    /// Waits where a call that failed may be tried again.
    ///
    /// # Errors
    /// That of the call, where it may not.
    pub fn pause_after(&mut self, failure: Failure) -> Outcome<()> {
        if !failure.is_passing() {
            return Err(failure);
        }
        self.connection = None;
        self.trouble.set(format!("{}: {failure}", self.settings));
        match self.backoff.pause(self.give_up_after) {
            None => Err(failure),
            Some(pause) if self.cancel.sleep(pause) => Ok(()),
            Some(_) => Err(Failure::Cancelled),
        }
    }

    /// A call has succeeded.
    pub fn succeeded(&mut self) {
        self.backoff.reset();
        self.trouble.clear();
    }

    /// The error for a user.
    pub fn explained(&self, failure: Failure, doing: &str) -> Error {
        failure.into_error(&self.settings, doing)
    }
}
