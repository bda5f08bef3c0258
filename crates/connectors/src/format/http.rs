//! Asking a server over HTTP, for the registry of schemas: small questions, one at a time.

use std::time::Duration;

use thalweg_core::connector::Secret;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::avro::registry::{Answer, Credentials};

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
pub fn ask(url: &str, credentials: &Credentials, body: Option<String>) -> Result<Answer, String> {
    let agent = agent(credentials)?;
    let authorization = credentials.authorization.as_ref().map(Secret::expose);
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(PAUSE * (1 << attempt));
        }
        match ask_once(&agent, url, authorization, body.as_deref()) {
            Ok(answer) if answer.status < 500 => return Ok(answer),
            Ok(answer) => last = format!("{} {}", answer.status, answer.body),
            Err(reason) => last = reason.to_string(),
        }
    }
    Err(last)
}

/// A client that trusts the authorities of these credentials.
fn agent(credentials: &Credentials) -> Result<ureq::Agent, String> {
    let mut tls = TlsConfig::builder();
    if let Some(pem) = &credentials.authorities {
        let certificates = certificates(pem)?;
        if certificates.is_empty() {
            return Err("the file of trusted authorities has no certificate".to_owned());
        }
        tls = tls.root_certs(RootCerts::from(certificates));
    }
    if let Some(pem) = &credentials.identity {
        let pem = pem.expose().as_bytes();
        let key = PrivateKey::from_pem(pem).map_err(|_| "the key store has no key".to_owned())?;
        let identity = ClientCert::new_with_certs(&certificates(pem)?, key);
        tls = tls.client_cert(Some(identity));
    }
    let config = ureq::Agent::config_builder().tls_config(tls.build());
    let config = config.timeout_global(Some(TIMEOUT)).http_status_as_error(false);
    // Another host was not allowed.
    Ok(config.max_redirects(0).build().into())
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut certificates = Vec::new();
    for item in parse_pem(pem) {
        let item = item.map_err(|error| format!("the file is not PEM: {error}"))?;
        if let PemItem::Certificate(certificate) = item {
            certificates.push(certificate);
        }
    }
    Ok(certificates)
}

fn ask_once(
    agent: &ureq::Agent,
    url: &str,
    authorization: Option<&str>,
    body: Option<&str>,
) -> Result<Answer, ureq::Error> {
    const JSON: &str = "application/vnd.schemaregistry.v1+json";
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
