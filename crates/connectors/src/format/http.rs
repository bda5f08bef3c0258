//! Asking a server over HTTP, for the registry of schemas: small questions, one at a time.

use std::time::Duration;

use super::avro::registry::Answer;

/// An answer that takes longer than this is none.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a server that does not answer is asked, and how long is waited in between.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);

/// Gets what is at an address, or posts a body there. Servers that do not answer, or have a
/// fault of their own, are asked again.
///
/// # Errors
/// If there is no answer: why.
pub fn ask(url: &str, authorization: Option<&str>, body: Option<String>) -> Result<Answer, String> {
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(PAUSE * (1 << attempt));
        }
        match ask_once(url, authorization, body.as_deref()) {
            Ok(answer) if answer.status < 500 => return Ok(answer),
            Ok(answer) => last = format!("{} {}", answer.status, answer.body),
            Err(reason) => last = reason.to_string(),
        }
    }
    Err(last)
}

fn ask_once(
    url: &str,
    authorization: Option<&str>,
    body: Option<&str>,
) -> Result<Answer, ureq::Error> {
    const JSON: &str = "application/vnd.schemaregistry.v1+json";
    let config = ureq::Agent::config_builder();
    let config = config.timeout_global(Some(TIMEOUT)).http_status_as_error(false);
    // Another host was not allowed.
    let config = config.max_redirects(0).build();
    let agent: ureq::Agent = config.into();
    let mut answer = match body {
        None => {
            let mut request = agent.get(url).header("Accept", JSON);
            if let Some(authorization) = authorization {
                request = request.header("Authorization", authorization);
            }
            request.call()?
        }
        Some(body) => {
            let mut request = agent.post(url).header("Content-Type", JSON);
            if let Some(authorization) = authorization {
                request = request.header("Authorization", authorization);
            }
            request.send(body)?
        }
    };
    let status = answer.status().as_u16();
    Ok(Answer { status, body: answer.body_mut().read_to_string()? })
}
