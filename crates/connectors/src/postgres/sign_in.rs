//! Connecting, encrypting and signing in.

use std::time::Duration;

use bytes::Buf;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use thalweg_core::Error;

use super::failure::{Failure, Outcome, ServerError};
use super::messages::{LENGTH_MAX, next_message, put};
use super::settings::{Protection, Settings};
use crate::network::tls::{Checks, Stream};
use crate::network::wire::Wire;
use crate::network::{Cancel, tcp};

/// Version 3.0 of the protocol.
const PROTOCOL: u32 = 3 << 16;
/// What asks for encryption in the place of a version.
const ENCRYPTION_REQUEST: u32 = 80_877_103;

/// Connects and signs in. `parameters` are sent besides user and database.
///
/// # Errors
/// If the server can't be reached or refuses.
pub fn sign_in(settings: &Settings, parameters: &[(&str, &str)], cancel: &Cancel) -> Outcome<Wire> {
    let limit = settings.connect_timeout;
    let place = (settings.host.as_str(), settings.port);
    let connected = tcp::connect(place, &settings.targets, limit, cancel);
    if cancel.is_set() {
        return Err(Failure::Cancelled);
    }
    let mut wire = Wire::new(LENGTH_MAX, cancel.clone());
    wire.begin(Stream::Plain(connected?));
    encrypt(settings, &mut wire)?;
    let mut body = PROTOCOL.to_be_bytes().to_vec();
    let own = [
        ("user", settings.user.as_str()),
        ("database", settings.database.as_str()),
        ("client_encoding", "UTF8"),
        ("application_name", settings.application.as_str()),
    ];
    for (name, value) in own.iter().chain(parameters).filter(|(_, value)| !value.is_empty()) {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(value.as_bytes());
        body.push(0);
    }
    body.push(0);
    put(&mut wire.output, 0, &body);
    wire.flush()?;
    authenticate(settings, &mut wire, limit)?;
    Ok(wire)
}

/// Asks for encryption, where the settings do.
fn encrypt(settings: &Settings, wire: &mut Wire) -> Outcome<()> {
    let checks = match settings.protection {
        Protection::None => return Ok(()),
        Protection::Preferred => Checks::Nothing,
        Protection::Required(checks) => checks,
    };
    put(&mut wire.output, 0, &ENCRYPTION_REQUEST.to_be_bytes());
    wire.flush()?;
    let limit = settings.connect_timeout;
    let answer = wire.wait_next(limit, |input| Ok(input.try_get_u8().ok()))?;
    wire.check_all_read()?;
    match (answer, settings.protection) {
        (b'S', _) => Ok(wire.encrypt(&settings.host, checks, settings.authorities.as_deref())?),
        (_, Protection::Preferred) => Ok(()),
        _ => Err(Failure::Error(
            Error::io(format!("{settings} offers no encryption"))
                .hint("turn on ssl in the server's settings, or use sslmode=disable"),
        )),
    }
}

fn authenticate(settings: &Settings, wire: &mut Wire, limit: Duration) -> Outcome<()> {
    let mut scram: Option<ScramSha256> = None;
    loop {
        let message = wire.wait_next(limit, next_message)?;
        let body = &message.body[..];
        match message.tag {
            b'R' => {}
            b'E' => return Err(Failure::Server(ServerError::read(body))),
            b'Z' => return Ok(()),
            _ => continue,
        }
        let (kind, rest) = body.split_first_chunk::<4>().ok_or_else(strange)?;
        match u32::from_be_bytes(*kind) {
            0 => {}
            3 => put(&mut wire.output, b'p', &terminated(&settings.password)),
            5 => {
                let salt = *rest.first_chunk::<4>().ok_or_else(strange)?;
                let (user, password) = (settings.user.as_bytes(), settings.password.as_bytes());
                put(&mut wire.output, b'p', &terminated(&md5_hash(user, password, salt)));
            }
            10 if has_mechanism(rest) => {
                let binding = ChannelBinding::unsupported();
                let started = ScramSha256::new(settings.password.as_bytes(), binding);
                let mut body = terminated(SCRAM_SHA_256);
                body.extend_from_slice(&(started.message().len() as u32).to_be_bytes());
                body.extend_from_slice(started.message());
                put(&mut wire.output, b'p', &body);
                scram = Some(started);
            }
            11 => {
                let scram = scram.as_mut().ok_or_else(strange)?;
                scram.update(rest)?;
                put(&mut wire.output, b'p', scram.message());
            }
            12 => scram.as_mut().ok_or_else(strange)?.finish(rest)?,
            _ => {
                return Err(Failure::Error(
                    Error::unsupported(format!(
                        "{settings} wants a way to sign in that is not supported"
                    ))
                    .hint("scram-sha-256, md5 and password are: see the server's pg_hba.conf"),
                ));
            }
        }
        wire.flush()?;
    }
}

fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn has_mechanism(list: &[u8]) -> bool {
    list.split(|&byte| byte == 0).any(|name| name == SCRAM_SHA_256.as_bytes())
}

fn strange() -> Failure {
    Failure::Broken("this is no server of PostgreSQL".to_owned())
}
