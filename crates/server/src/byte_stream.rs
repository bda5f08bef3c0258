//! A connection over a socket or the network, whichever: what reads and writes HTTP is long code,
//! which is compiled once for both.

use tokio::io::{AsyncRead, AsyncWrite};

/// What bytes come from and go to.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}
