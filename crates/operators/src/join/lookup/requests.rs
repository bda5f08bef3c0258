//! The thread that waits for answers: it polls what is on its way, this many at once, gives up what
//! takes too long, and asks again for what failed.
//!
//! It blocks nobody: whoever asks leaves a call and what is to be done with the answer. A waker
//! sends the number of what can continue; a message that comes too late, for something that is
//! over, is passed over. When the join is dropped the thread is asked to end, and what is on its
//! way is dropped with it.
//!
//! A request is in exactly one of three places: `queue` (not asked yet), `under_way` (polled when
//! woken), `resting` (failed, to be asked again). It leaves with an answer, with an error once no
//! retry is left, or with the thread.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::RecordBatch;
use thalweg_core::lookup::{Answer, LookupOptions};
use thalweg_core::shim::SharedClock;
use thalweg_core::{Error, ErrorKind, Result};

/// Asks the table once.
pub(super) type Call = Box<dyn Fn() -> Answer + Send>;

/// Takes the answer.
pub(super) type Take = Box<dyn FnOnce(Result<RecordBatch>) + Send>;

/// How long a failed call rests before it is made again.
const REST: Duration = Duration::from_millis(20);

/// How long the thread sleeps if nothing is due.
const LONG: Duration = Duration::from_secs(3600);

struct Request {
    call: Call,
    take: Take,
    retries_left: u32,
}

enum Message {
    Ask(Request),
    Wake(u64),
    End,
}

/// Wakes what has this number.
struct WakeUp {
    number: u64,
    sender: Sender<Message>,
}

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        // A thread that has ended needs no waking.
        let _ = self.sender.send(Message::Wake(self.number));
    }
}

/// The thread, for those who ask.
pub(super) struct Asking {
    sender: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    /// Starts the thread.
    pub fn start(name: &str, options: &LookupOptions, clock: SharedClock) -> Result<Self> {
        let (sender, receiver) = channel();
        let mut thread = Waiting {
            name: name.to_owned(),
            options: options.clone(),
            clock,
            receiver,
            sender: sender.clone(),
            queue: VecDeque::new(),
            resting: VecDeque::new(),
            under_way: HashMap::new(),
            next: 0,
        };
        let started = std::thread::Builder::new()
            .name("lookup".to_owned())
            .spawn(move || while thread.step() {});
        let thread = started
            .map_err(|error| Error::io(format!("can't start a thread for {name}: {error}")))?;
        Ok(Asking { sender, thread: Some(thread) })
    }

    /// Makes a call, and hands its answer to `take`.
    pub fn ask(&self, call: Call, take: Take) {
        let request = Request { call, take, retries_left: u32::MAX };
        // The thread lives as long as this.
        let _ = self.sender.send(Message::Ask(request));
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::End);
        // A panic of the user's code was caught and reported where it happened.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

struct UnderWay {
    answer: Answer,
    request: Request,
    gives_up_ns: u64,
}

struct Waiting {
    name: String,
    options: LookupOptions,
    clock: SharedClock,
    receiver: Receiver<Message>,
    sender: Sender<Message>,
    /// Not begun.
    queue: VecDeque<Request>,
    /// Failed, with the instant at which they are begun again.
    resting: VecDeque<(u64, Request)>,
    under_way: HashMap<u64, UnderWay>,
    next: u64,
}

impl Waiting {
    /// Takes a message, or what is due. False at the end.
    fn step(&mut self) -> bool {
        match self.receiver.recv_timeout(self.until_due()) {
            Ok(Message::Ask(request)) => {
                let retries_left = self.options.max_retries.min(request.retries_left);
                self.queue.push_back(Request { retries_left, ..request });
            }
            Ok(Message::Wake(number)) => self.poll(number),
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {}
        }
        self.give_up();
        self.begin();
        true
    }

    fn until_due(&self) -> Duration {
        let given_up = self.under_way.values().map(|one| one.gives_up_ns);
        let rested = self.resting.iter().map(|(at_ns, _)| *at_ns);
        match given_up.chain(rested).min() {
            Some(due_ns) => Duration::from_nanos(due_ns.saturating_sub(self.clock.now_ns())),
            None => LONG,
        }
    }

    /// Begins what there is room for.
    fn begin(&mut self) {
        let now_ns = self.clock.now_ns();
        while let Some((at_ns, _)) = self.resting.front()
            && *at_ns <= now_ns
        {
            let rested = self.resting.pop_front();
            self.queue.extend(rested.map(|(_, request)| request));
        }
        while self.under_way.len() < self.options.capacity.max(1)
            && let Some(request) = self.queue.pop_front()
        {
            let number = self.next;
            self.next += 1;
            let gives_up_ns = now_ns.saturating_add(self.options.timeout.as_nanos() as u64);
            match catch_unwind(AssertUnwindSafe(|| (request.call)())) {
                Ok(answer) => {
                    self.under_way.insert(number, UnderWay { answer, request, gives_up_ns });
                    self.poll(number);
                }
                Err(_) => (request.take)(Err(self.panicked())),
            }
        }
    }

    fn poll(&mut self, number: u64) {
        let Some(one) = self.under_way.get_mut(&number) else { return };
        let waker = Waker::from(Arc::new(WakeUp { number, sender: self.sender.clone() }));
        let polled = catch_unwind(AssertUnwindSafe(|| {
            one.answer.as_mut().poll(&mut Context::from_waker(&waker))
        }));
        let answer = match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(answer)) => answer,
            Err(_) => {
                let one = self.under_way.remove(&number);
                one.into_iter().for_each(|one| (one.request.take)(Err(self.panicked())));
                return;
            }
        };
        if let Some(one) = self.under_way.remove(&number) {
            self.settle(one.request, answer);
        }
    }

    /// Hands an answer over, or asks again.
    fn settle(&mut self, mut request: Request, answer: Result<RecordBatch>) {
        match answer {
            Err(_) if request.retries_left > 0 => {
                request.retries_left -= 1;
                let again_ns = self.clock.now_ns().saturating_add(REST.as_nanos() as u64);
                self.resting.push_back((again_ns, request));
            }
            answer => (request.take)(answer),
        }
    }

    fn give_up(&mut self) {
        let now_ns = self.clock.now_ns();
        let late = self.under_way.iter().filter(|(_, one)| one.gives_up_ns <= now_ns);
        for number in late.map(|(&number, _)| number).collect::<Vec<u64>>() {
            if let Some(one) = self.under_way.remove(&number) {
                let error = Error::io(format!(
                    "{}: no answer within {} ms",
                    self.name,
                    self.options.timeout.as_millis()
                ))
                .hint("give the table a longer 'lookup.async.timeout', or a smaller 'lookup.async.capacity'");
                self.settle(one.request, Err(error));
            }
        }
    }

    fn panicked(&self) -> Error {
        Error::new(ErrorKind::User, format!("{} panicked while it was asked", self.name))
    }
}
