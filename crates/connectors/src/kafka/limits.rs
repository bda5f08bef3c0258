//! What the servers allow.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::Consumer as _;

use super::client::{CALL, Consumer, Properties};

/// The longest that a transaction may last, in milliseconds; `None` where the servers do not say,
/// or not this user.
pub fn transaction_limit_ms(consumer: &Consumer, properties: &Properties) -> Option<u64> {
    let metadata = consumer.fetch_metadata(None, CALL * 5).ok()?;
    let server = metadata.brokers().first()?.id();
    let admin: AdminClient<DefaultClientContext> = properties.config().create().ok()?;
    let options = AdminOptions::new().request_timeout(Some(CALL * 5));
    let asked = [ResourceSpecifier::Broker(server)];
    let answers = wait(admin.describe_configs(&asked, &options)).ok()?;
    let answer = answers.into_iter().next()?.ok()?;
    let entry =
        answer.entries.into_iter().find(|entry| entry.name == "transaction.max.timeout.ms")?;
    entry.value?.parse().ok()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a value.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park_timeout(Duration::from_millis(100)),
        }
    }
}
