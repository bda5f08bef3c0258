//! What a client has declared and set, and its operations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use thalweg_core::Error;
use thalweg_core::quoting::quoted_text;
use thalweg_library::session::{SETTING_KEYS, Session, SessionOptions};

use super::operation::{Operation, Status};
use crate::problem::{Outcome, Problem};
use crate::requests::SQL_BYTES_MAX;
use crate::server::Server;

/// What a query may keep in memory.
const QUERY_MEMORY: &str = "256mb";
/// Operations that a session remembers: of more, the oldest are closed.
const OPERATIONS_MAX: usize = 256;
/// Properties of a session.
const PROPERTIES_MAX: usize = 1_000;

/// A session of a client.
pub struct GatewaySession {
    /// Its name.
    pub handle: String,
    /// Who has opened it.
    pub by: String,
    /// What the engine knows of it.
    pub engine: Mutex<Engine>,
    operations: Mutex<VecDeque<Arc<Operation>>>,
    turns: Mutex<Turns>,
    /// A turn has ended.
    turn_ended: Condvar,
    used_ns: AtomicU64,
}

/// Statements of a session take effect one after another, as they were sent: a client sends SET,
/// and the next statement without asking whether SET has been carried out.
#[derive(Default)]
struct Turns {
    /// How many were handed out.
    handed_out: u64,
    /// Whose turn it is.
    current: u64,
    /// Later ones that have ended already.
    ended: BTreeSet<u64>,
}

/// The turn of a statement, until it is dropped.
pub struct Turn {
    session: Arc<GatewaySession>,
    number: u64,
}

impl Turn {
    /// Waits until all statements before have taken effect.
    pub fn wait(&self) {
        let turns = self.session.turns.lock().expect("no panic under this lock");
        let waited = self.session.turn_ended.wait_while(turns, |turns| turns.current < self.number);
        drop(waited.expect("no panic under this lock"));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.session.turns.lock().expect("no panic under this lock");
        turns.ended.insert(self.number);
        while let Some(&first) = turns.ended.first()
            && first == turns.current
        {
            turns.ended.pop_first();
            turns.current += 1;
        }
        drop(turns);
        self.session.turn_ended.notify_all();
    }
}

/// What the engine knows of a session.
pub struct Engine {
    /// Its catalogue and settings.
    pub session: Session,
    /// All that was set, also what has no effect here: clients read their own options back.
    pub properties: BTreeMap<String, String>,
    /// What jobs are started with.
    pub settings: BTreeMap<String, String>,
    /// The declarations so far, which stand in front of the statements of a job.
    pub declarations: Vec<String>,
    /// The INSERTs of a statement set that is not complete.
    pub statement_set: Option<Vec<String>>,
}

impl GatewaySession {
    /// Opens a session with these properties.
    ///
    /// # Errors
    /// If the value of an option is wrong, or there are too many.
    pub fn open(
        server: &Server,
        properties: BTreeMap<String, String>,
        by: &str,
    ) -> Outcome<GatewaySession> {
        let options = SessionOptions {
            memory_limit: Some(QUERY_MEMORY.to_owned()),
            ..server.open_options(Vec::new())
        };
        let mut engine = Engine {
            session: Session::new(options)?,
            properties: BTreeMap::new(),
            settings: BTreeMap::new(),
            declarations: Vec::new(),
            statement_set: None,
        };
        for (key, value) in properties {
            engine.set_property(key, value)?;
        }
        Ok(GatewaySession {
            handle: new_handle()?,
            by: by.to_owned(),
            engine: Mutex::new(engine),
            operations: Mutex::default(),
            turns: Mutex::default(),
            turn_ended: Condvar::new(),
            used_ns: AtomicU64::new(0),
        })
    }

    /// What the engine knows of it.
    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().expect("no panic under this lock")
    }

    fn operations(&self) -> MutexGuard<'_, VecDeque<Arc<Operation>>> {
        self.operations.lock().expect("no panic under this lock")
    }

    /// The next turn.
    pub fn turn(self: &Arc<Self>) -> Turn {
        let mut turns = self.turns.lock().expect("no panic under this lock");
        let number = turns.handed_out;
        turns.handed_out += 1;
        Turn { session: Arc::clone(self), number }
    }

    /// It is used at this time.
    pub fn touch(&self, now_ns: u64) {
        // Relaxed: a number for a decision that may be late.
        self.used_ns.store(now_ns, Ordering::Relaxed);
    }

    /// For how long nobody has used it.
    pub fn idle(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.used_ns.load(Ordering::Relaxed)))
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// If the system gives no randomness.
    pub fn begin(&self) -> Outcome<Arc<Operation>> {
        let operation = Arc::new(Operation::new(new_handle()?));
        let mut operations = self.operations();
        operations.push_back(Arc::clone(&operation));
        let oldest = (operations.len() > OPERATIONS_MAX).then(|| operations.pop_front()).flatten();
        drop(operations);
        if let Some(oldest) = oldest {
            oldest.leave(Status::Closed);
        }
        Ok(operation)
    }

    /// An operation.
    ///
    /// # Errors
    /// If it is not there, or not any more.
    pub fn operation(&self, handle: &str) -> Outcome<Arc<Operation>> {
        let found = self.operations().iter().find(|known| known.handle == handle).cloned();
        found.ok_or_else(|| {
            let shown: String = handle.chars().take(36).filter(|c| !c.is_control()).collect();
            let detail = format!("Can not find the submitted operation '{shown}' in the session.");
            Problem::new(404, "no-such-operation", detail)
        })
    }

    /// Forgets an operation; its query ends.
    ///
    /// # Errors
    /// If it is not there.
    pub fn close_operation(&self, handle: &str) -> Outcome<()> {
        self.operation(handle)?.leave(Status::Closed);
        self.operations().retain(|known| known.handle != handle);
        Ok(())
    }

    /// All its queries end.
    pub fn close(&self) {
        let operations = std::mem::take(&mut *self.operations());
        operations.iter().for_each(|operation| operation.leave(Status::Closed));
    }
}

impl Engine {
    /// A property of a session that opens, or of a statement: options that are not known here have
    /// no effect, for clients send all of theirs.
    ///
    /// # Errors
    /// If the value of an option is wrong.
    pub fn set_property(&mut self, key: String, value: String) -> Outcome<()> {
        let set = self.session.declare(&set_statement(&key, &value));
        match set {
            Ok(()) => drop(self.settings.insert(key.clone(), value.clone())),
            Err(error) if SETTING_KEYS.iter().any(|known| known.name == key) => {
                return Err(error.into());
            }
            Err(_) => {}
        }
        self.note_property(key, value)
    }

    /// What SET has set.
    ///
    /// # Errors
    /// If there are too many.
    pub fn note_property(&mut self, key: String, value: String) -> Outcome<()> {
        let is_new = !self.properties.contains_key(&key);
        if is_new && self.properties.len() >= PROPERTIES_MAX {
            let detail = format!("a session has at most {PROPERTIES_MAX} properties");
            return Err(Problem::new(413, "too-large", detail));
        }
        self.properties.insert(key, value);
        Ok(())
    }

    /// What RESET has reset.
    pub fn forget_property(&mut self, key: Option<&str>) {
        match key {
            Some(key) => drop((self.properties.remove(key), self.settings.remove(key))),
            None => {
                self.properties.clear();
                self.settings.clear();
            }
        }
    }

    /// A declaration that counts for jobs to come.
    ///
    /// # Errors
    /// If there are too many.
    pub fn note_declaration(&mut self, text: &str) -> Outcome<()> {
        let text = text.trim().trim_end_matches(';').to_owned();
        let bytes: usize = self.declarations.iter().map(String::len).sum();
        if bytes + text.len() > SQL_BYTES_MAX {
            let detail = "the declarations of this session are too long: open another one";
            return Err(Problem::new(413, "too-large", detail));
        }
        self.declarations.push(text);
        Ok(())
    }

    /// The statements of a job that ends with these.
    pub fn job_text(&self, statements: &str) -> String {
        let all = self.declarations.iter().map(String::as_str).chain([statements]);
        all.collect::<Vec<_>>().join(";\n\n")
    }

    /// The same settings and declarations, for one statement with options of its own.
    ///
    /// # Errors
    /// If the value of an option is wrong.
    pub fn fork(&self, options: &BTreeMap<String, String>) -> Outcome<Engine> {
        let mut own = Engine {
            session: self.session.fork(),
            properties: self.properties.clone(),
            settings: self.settings.clone(),
            declarations: self.declarations.clone(),
            statement_set: None,
        };
        for (key, value) in options {
            own.set_property(key.clone(), value.clone())?;
        }
        Ok(own)
    }
}

/// `SET 'key' = 'value'`
fn set_statement(key: &str, value: &str) -> String {
    format!("SET {} = {}", quoted_text(key), quoted_text(value))
}

/// A name that nobody guesses, as Flink's clients take it.
fn new_handle() -> Outcome<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::from(Error::io(format!("no random bytes: {error}"))))?;
    // The version and the variant of a random UUID.
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let digits = crate::tokens::hexadecimal(&bytes);
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Ok(parts.join("-"))
}
