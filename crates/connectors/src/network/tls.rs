//! Encrypted connections, with one provider of cryptography (ring) for all clients.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme, StreamOwned,
};
use thalweg_core::{Error, Result};

/// How much of a server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Nothing: nobody can read along, but the server may be anybody.
    Nothing,
    /// That an authority that is trusted has signed it.
    Authority,
    /// That, and that it is of this host.
    AuthorityAndHost,
}

/// A connection, encrypted or not.
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// The settings of encrypted connections. `authorities` is a file of certificates in PEM form.
///
/// # Errors
/// If the file can't be read, or holds no certificate.
pub fn settings(checks: Checks, authorities: Option<&Path>) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let authority = match (checks, authorities) {
        (Checks::Nothing, _) => None,
        (_, None) => return Err(Error::plan("no file of trusted authorities is named")),
        (_, Some(path)) => {
            let trusted = trusted(path)?;
            let authority = WebPkiServerVerifier::builder_with_provider(trusted, provider.clone());
            Some(authority.build().map_err(|e| in_file(path, e))?)
        }
    };
    let verifier: Arc<dyn ServerCertVerifier> = match (checks, authority) {
        (Checks::AuthorityAndHost, Some(authority)) => authority,
        (_, authority) => Arc::new(FewerChecks { authority, provider: provider.clone() }),
    };
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|e| Error::internal(format!("no version of TLS: {e}")))?;
    let config = config.dangerous().with_custom_certificate_verifier(verifier);
    Ok(Arc::new(config.with_no_client_auth()))
}

fn in_file(path: &Path, error: impl fmt::Display) -> Error {
    Error::io(format!("trusted authorities: {error}")).in_file(path.display().to_string())
}

fn trusted(path: &Path) -> Result<Arc<RootCertStore>> {
    let mut store = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(|e| in_file(path, e))?;
    for certificate in certificates {
        store.add(certificate.map_err(|e| in_file(path, e))?).map_err(|e| in_file(path, e))?;
    }
    match store.is_empty() {
        true => Err(in_file(path, "the file has no certificate")),
        false => Ok(Arc::new(store)),
    }
}

impl Stream {
    /// Encrypts a connection to this host. The handshake happens with the first bytes.
    ///
    /// # Errors
    /// If the host has no name that a certificate could have.
    pub fn encrypted(config: Arc<ClientConfig>, host: &str, tcp: TcpStream) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(connection, tcp))))
    }

    /// The connection below.
    #[cfg(feature = "websocket")]
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// Checks less of a certificate than is usual, and signatures as usual.
#[derive(Debug)]
struct FewerChecks {
    /// A trusted authority must have signed it, of whatever host it is; `None`: all are taken.
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

type Signed = std::result::Result<HandshakeSignatureValid, rustls::Error>;
type Verified = std::result::Result<ServerCertVerified, rustls::Error>;

impl ServerCertVerifier for FewerChecks {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Verified {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(certificate, between, host, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Signed {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Signed {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
