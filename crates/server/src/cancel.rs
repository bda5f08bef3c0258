//! Requests that take time and are not wanted any more.
//!
//! **Invariant:** what has been promised stays: a cancelled upgrade goes back as one that does not
//! prove itself, and a cancelled start leaves the snapshots that there were.

use thalweg_core::shim::Clock;

use crate::lifecycle::{Desired, StopHow};
use crate::operations::{Operation, OperationKind, OperationState};
use crate::problem::{Outcome, Problem};
use crate::requests::StopBody;
use crate::server::Server;

impl Server {
    /// An operation is not wanted any more.
    ///
    /// # Errors
    /// If it has ended, or is of a kind that takes its course.
    pub fn cancel_operation(&self, operation: &Operation, by: &str) -> Outcome<Operation> {
        self.check_open()?;
        if operation.state != OperationState::Running {
            return Err(Problem::new(409, "has-ended", "the operation has ended already"));
        }
        match operation.kind {
            OperationKind::Trial => {}
            OperationKind::Start => self.cancel_start(operation, by)?,
            OperationKind::Upgrade => self.cancel_upgrade(operation, by)?,
            kind => return Err(Problem::new(409, "takes-its-course", why_not(kind))),
        }
        self.operations.cancel(&operation.id).ok_or_else(|| {
            Problem::new(404, "no-such-operation", "the operation is not remembered any more")
        })
    }

    /// A job that was to run is stopped, as it is.
    fn cancel_start(&self, operation: &Operation, by: &str) -> Outcome<()> {
        let cut = StopBody { how: StopHow::Cancel };
        self.stop(&operation.job, &cut, by)?;
        let problem =
            Problem::new(409, "cancelled", "a person has cancelled it; the job is stopped");
        self.operations.end(&operation.id, Err(problem), self.clock.wall_ms());
        Ok(())
    }

    /// The time of an upgrade to prove itself is over.
    fn cancel_upgrade(&self, operation: &Operation, by: &str) -> Outcome<()> {
        let job = self.job(&operation.job)?;
        let mut state = job.lock();
        let upgrade =
            state.record.upgrade.clone().filter(|_| state.record.desired != Desired::Stopped);
        let Some(mut upgrade) = upgrade.filter(|upgrade| upgrade.until_ms.is_some()) else {
            let detail =
                "the statements before are about to end with a snapshot: ask again in a moment";
            return Err(Problem::new(409, "takes-its-course", detail));
        };
        upgrade.is_cancelled = true;
        state.change(&self.catalogue, |record| record.upgrade = Some(upgrade))?;
        state.is_touched = true;
        self.event(&job, "request", "cancel the upgrade", None, by);
        self.bell.ring();
        Ok(())
    }
}

/// Why an operation cannot be cancelled, and what can be done.
fn why_not(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Stop => {
            "the job has been asked to end, and ends: stop it again with how=cancel if that takes too long, and start it \
             when it is stopped"
        }
        OperationKind::Pause => "the sources are held already: resume the job",
        OperationKind::Resume => "the sources are asked again already: pause the job",
        OperationKind::Snapshot => {
            "the snapshot passes through the job with its rows: delete it when it is there"
        }
        OperationKind::Replay => {
            "the job may have read some of the letters already: the next snapshot says which"
        }
        OperationKind::Restart => {
            "the job is about to end with a snapshot, and starts again: stop it if it is to stay so"
        }
        _ => "it takes its course",
    }
}
