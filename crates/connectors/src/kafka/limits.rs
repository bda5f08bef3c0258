//! What the servers allow.

use futures_executor::block_on;
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
    let answers = block_on(admin.describe_configs(&asked, &options)).ok()?;
    let answer = answers.into_iter().next()?.ok()?;
    let entry =
        answer.entries.into_iter().find(|entry| entry.name == "transaction.max.timeout.ms")?;
    entry.value?.parse().ok()
}
