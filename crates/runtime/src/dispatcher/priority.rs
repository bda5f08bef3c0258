//! The order of looking without priority (see [`ablation`](crate::ablation)).

use thalweg_ordering::sync::Ordering;

use super::{Dispatcher, Task};
use crate::stage::StageRunKind;

impl Dispatcher<'_> {
    /// Whatever is at the stage that the worker is at, or at the next one that has something.
    pub(super) fn without_priority(&self) -> Option<Task> {
        let at = self.job.ablated.at(self.worker.worker);
        // Relaxed: the worker's own.
        let (first, stages) = (at.load(Ordering::Relaxed), self.job.stages.len());
        let in_turn = (0..stages).map(|step| (first + step) % stages);
        let found = in_turn.into_iter().find_map(|stage| {
            let task = match &self.job.stages[stage].kind {
                StageRunKind::Source(_) => self.next_poll(),
                _ => self.waiting_at(stage),
            };
            task.map(|task| (stage, task))
        });
        let (stage, task) = found?;
        // A source always has more: it would never be drained.
        let stays = !matches!(task, Task::Poll { .. });
        at.store(if stays { stage } else { (stage + 1) % stages }, Ordering::Relaxed);
        Some(task)
    }
}
