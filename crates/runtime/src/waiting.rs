//! Bundles of stages that wait for the outside ([`Transform::is_asynchronous`]).
//!
//! A worker begins such a bundle and goes away. Whoever has what it waits for leaves it here, from
//! any thread, and wakes a worker, which does the rest and hands the result on as that of any
//! stateless stage. In between the bundle counts as not consumed: its container stays open
//! (`epoch`), its element keeps its place in the reorder buffer (ordered contracts), and its bytes
//! count in the memory account, so sources slow down when many wait.
//!
//! Nothing here keeps the job alive: who comes back to a job that is over leaves something that
//! nobody fetches.

use std::collections::VecDeque;

use thalweg_core::operator::{Done, Finish};
use thalweg_core::{Bundle, Result, Transform, Watermark};
use thalweg_ordering::sync::{Arc, Queue};

use crate::container::Container;
use crate::dispatcher::WorkerPlace;
use crate::job::Job;
use crate::metrics::StageMetrics;
use crate::news::News;
use crate::ordered::Passage;
use crate::parts::OpenBundle;

/// Bundles that can continue.
pub(crate) struct Returned {
    queue: Queue<Continued>,
    news: Arc<News>,
}

impl Returned {
    pub(crate) fn new(news: Arc<News>) -> Self {
        Returned { queue: Queue::new(), news }
    }

    /// The next one.
    pub(crate) fn pop(&self) -> Option<Continued> {
        self.queue.pop()
    }
}

/// A bundle that can continue.
pub struct Continued {
    pub(crate) stage: usize,
    work: Work,
}

/// What is left to be done.
enum Work {
    /// The rest of a bundle that was begun.
    Finish(Finish, Home),
    /// The next parts of a bundle.
    Parts(Box<OpenBundle>),
}

impl Continued {
    /// A bundle of which some parts are made.
    pub(crate) fn of_parts(stage: usize, open: Box<OpenBundle>) -> Self {
        Continued { stage, work: Work::Parts(open) }
    }
}

/// Where the result goes.
pub(crate) enum Home {
    /// Downstream of a container.
    Container { lane: usize, container: Arc<Container>, bytes: usize },
    /// Into an element.
    Element(Box<OpenElement>),
}

/// An element of which some bundles are done.
pub(crate) struct OpenElement {
    pub(crate) place: u64,
    pub(crate) passage: Passage,
    pub(crate) watermark: Option<Watermark>,
    pub(crate) bytes: usize,
    /// Not begun.
    pub(crate) rest: VecDeque<Bundle>,
    pub(crate) done: Vec<Bundle>,
}

impl Job {
    /// Begins a bundle of a stage that waits for the outside.
    pub(crate) fn begin_bundle(
        &self,
        stage: usize,
        transform: &dyn Transform,
        bundle: Bundle,
        home: Home,
    ) {
        let returned = Arc::clone(&self.returned);
        let done: Done = Box::new(move |finish| {
            returned.queue.push(Continued { stage, work: Work::Finish(finish, home) });
            returned.news.notify();
        });
        transform.begin(bundle, done);
    }

    /// Continues with an element: begins its next bundle, or sends it on.
    pub(crate) fn continue_element(
        &self,
        stage: usize,
        transform: &dyn Transform,
        mut element: Box<OpenElement>,
    ) -> Result<()> {
        while let Some(bundle) = element.rest.pop_front() {
            let metrics = &self.stages[stage].metrics;
            StageMetrics::add(&metrics.rows_in, bundle.num_rows() as u64);
            StageMetrics::add(&metrics.bundles_in, 1);
            if bundle.num_rows() > 0 {
                self.begin_bundle(stage, transform, bundle, Home::Element(element));
                return Ok(());
            }
        }
        self.send_element(self.ordered_flow(), stage, *element)
    }

    /// Finishes a bundle that has come back.
    pub(crate) fn continue_bundle(&self, continued: Continued, place: WorkerPlace) -> Result<()> {
        let Continued { stage, work } = continued;
        let (finish, home) = match work {
            Work::Finish(finish, home) => (finish, home),
            Work::Parts(open) => return self.resume_bundle(stage, *open, place),
        };
        let mut result = finish()?;
        result.stamps.origin = None;
        result.stamps.numa_node = place.numa_node as u16;
        match home {
            Home::Container { lane, container, bytes } => {
                self.pass_transformed(stage, lane, &container, result, bytes)
            }
            Home::Element(mut element) => {
                if result.num_rows() > 0 {
                    element.done.push(result);
                }
                self.resume_element(stage, element)
            }
        }
    }
}
