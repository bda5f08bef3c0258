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

use thalweg_core::operator::{Done, Finish};
use thalweg_core::{Bundle, Transform};
use thalweg_ordering::sync::{Arc, Queue};

use crate::container::Container;
use crate::news::News;
use crate::ordered::element::OpenElement;
use crate::parked::OpenBundle;

/// Bundles that can continue.
pub(crate) struct Returned {
    queue: Queue<Continued>,
    news: Arc<News>,
}

impl Returned {
    pub(crate) fn new(news: Arc<News>) -> Self {
        Returned { queue: Queue::new(), news }
    }

    /// Begins a bundle of a stage that waits for the outside, which is asked under this number. Its
    /// rest comes here.
    pub(crate) fn begin(
        self: &Arc<Self>,
        (stage, asked): (usize, u64),
        transform: &dyn Transform,
        bundle: Bundle,
        home: Home,
    ) {
        let returned = Arc::clone(self);
        let done: Done = Box::new(move |finish| {
            returned.queue.push(Continued { stage, work: Work::Finish(finish, home, asked) });
            returned.news.notify();
        });
        transform.begin(bundle, done);
    }

    /// The next one.
    pub(crate) fn pop(&self) -> Option<Continued> {
        self.queue.pop()
    }
}

/// A bundle that can continue.
pub struct Continued {
    pub(crate) stage: usize,
    pub(crate) work: Work,
}

/// What is left to be done.
pub(crate) enum Work {
    /// The rest of a bundle that was begun, and the number under which it was asked for.
    Finish(Finish, Home, u64),
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
