//! All sessions of the gateway, and how much is in work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use thalweg_core::shim::Clock;

use crate::problem::{Outcome, Problem};
use crate::server::Server;

use super::session::GatewaySession;

/// Sessions at a time.
const SESSIONS_MAX: usize = 1_000;
/// Statements that are in work at a time, queries that are read included.
const STATEMENTS_MAX: usize = 64;

/// All sessions.
pub struct Gateway {
    /// The server that they are of.
    pub server: Arc<Server>,
    sessions: Mutex<HashMap<String, Arc<GatewaySession>>>,
    statements: AtomicUsize,
    /// Names of jobs are chosen one at a time.
    pub submitting: Mutex<()>,
}

impl Gateway {
    /// The gateway of a server, without sessions.
    pub fn new(server: Arc<Server>) -> Gateway {
        Gateway {
            server,
            sessions: Mutex::default(),
            statements: AtomicUsize::new(0),
            submitting: Mutex::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<GatewaySession>>> {
        self.sessions.lock().expect("no panic under this lock")
    }

    /// Adds a session.
    ///
    /// # Errors
    /// If there are too many.
    pub fn add(&self, session: GatewaySession) -> Outcome<Arc<GatewaySession>> {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX {
            let detail = format!("there are {SESSIONS_MAX} sessions at a time: close one");
            return Err(Problem::new(429, "too-many-requests", detail));
        }
        let session = Arc::new(session);
        sessions.insert(session.handle.clone(), Arc::clone(&session));
        Ok(session)
    }

    /// A session, which is in use from now on.
    ///
    /// # Errors
    /// If it is not there, or not any more.
    pub fn session(&self, handle: &str) -> Outcome<Arc<GatewaySession>> {
        let found = self.lock().get(handle).cloned();
        let session = found.ok_or_else(|| no_session(handle))?;
        session.touch(self.server.clock.now_ns());
        Ok(session)
    }

    /// Closes a session with its queries; its jobs continue.
    ///
    /// # Errors
    /// If it is not there.
    pub fn close(&self, handle: &str) -> Outcome<()> {
        let removed = self.lock().remove(handle);
        removed.ok_or_else(|| no_session(handle))?.close();
        Ok(())
    }

    /// Closes the sessions that nobody has used for a while.
    pub fn close_idle(&self) {
        let now_ns = self.server.clock.now_ns();
        let limit = self.server.config.gateway_session_timeout();
        let mut idle = Vec::new();
        self.lock().retain(|_, session| {
            let is_idle = session.idle(now_ns) >= limit;
            if is_idle {
                idle.push(Arc::clone(session));
            }
            !is_idle
        });
        idle.iter().for_each(|session| session.close());
    }

    /// A place for one more statement in work.
    ///
    /// # Errors
    /// If there are too many.
    pub fn begin_statement(self: &Arc<Self>) -> Outcome<InWork> {
        let in_work = InWork(Arc::clone(self));
        if self.statements.fetch_add(1, Ordering::SeqCst) >= STATEMENTS_MAX {
            let detail = format!(
                "{STATEMENTS_MAX} statements are in work at a time: close the operations of queries that are not read"
            );
            return Err(Problem::new(429, "too-many-requests", detail));
        }
        Ok(in_work)
    }
}

fn no_session(handle: &str) -> Problem {
    // A handle is secret, and what is none is not repeated.
    let shown: String = handle.chars().take(36).filter(|c| !c.is_control()).collect();
    Problem::new(404, "no-such-session", format!("Session '{shown}' does not exist."))
}

/// A statement in work.
pub struct InWork(Arc<Gateway>);

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.statements.fetch_sub(1, Ordering::SeqCst);
    }
}
