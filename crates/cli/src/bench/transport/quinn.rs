//! QUIC by quinn as a yardstick: one connection, one bidirectional stream, messages framed by their
//! length; AES-128-GCM, a certificate of the moment that nobody checks.
//!
//! The connection's work is done by tokio's worker thread, as in most programs that use quinn. Datagrams
//! may grow as large as the path carries, as denrei's do.

use super::{Endpoint, Frame, FrameReader, Incoming, Link, PATIENCE, is_not_yet, poll_for, polls};
use crate::bench::control::Job;
use anyhow::{Context, Result};
use bytes::Bytes;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use quinn::rustls::crypto::{CryptoProvider, aws_lc_rs};
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use quinn::rustls::{self, CipherSuite, DigitallySignedStruct, SignatureScheme};
use quinn::{ClientConfig, EndpointConfig, MtuDiscoveryConfig, RecvStream, SendStream, ServerConfig};
use std::io::{self, Read};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// The name in the certificate.
const NAME: &str = "denrei";
/// What one read takes at most, bytes.
const READ_BYTES: usize = 256 * 1024;
/// Largest UDP payload, bytes.
const MAX_DATAGRAM_BYTES: u16 = 65_527;
/// What opens the stream: it exists for the other side with its first octet.
const HELLO: &[u8] = b"+";

/// A socket with its runtime; side 1 listens, side 0 connects.
pub struct QuinnEndpoint {
    runtime: Runtime,
    endpoint: quinn::Endpoint,
    job: Job,
}

impl QuinnEndpoint {
    /// Binds a free port.
    pub fn open(job: &Job) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let socket = UdpSocket::bind((job.bind, 0)).with_context(|| format!("cannot bind {}", job.bind))?;
        let mut config = EndpointConfig::default();
        config.max_udp_payload_size(MAX_DATAGRAM_BYTES)?;
        let entered = runtime.enter();
        let server = (job.index == 1).then(server_config).transpose()?;
        let tokio = Arc::new(quinn::TokioRuntime);
        let mut endpoint = quinn::Endpoint::new(config, server, socket, tokio)?;
        endpoint.set_default_client_config(client_config()?);
        drop(entered);
        Ok(Self { runtime, endpoint, job: job.clone() })
    }
}

impl Endpoint for QuinnEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.endpoint.local_addr()?)
    }

    fn link(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn Link>> {
        let Self { runtime, endpoint, job } = *self;
        let other = addresses.get(1).copied().context("the other side has no address")?;
        let (connection, sender, receiver) = runtime.block_on(async {
            if job.index == 0 {
                let connection = endpoint.connect(other, NAME)?.await?;
                let (mut sender, receiver) = connection.open_bi().await?;
                sender.write_all(HELLO).await?;
                return anyhow::Ok((connection, sender, receiver));
            }
            let connection = endpoint.accept().await.context("the endpoint was closed")?.await?;
            let (sender, mut receiver) = connection.accept_bi().await?;
            receiver.read_exact(&mut [0; HELLO.len()]).await?;
            Ok((connection, sender, receiver))
        })?;
        let reader = FrameReader::new(READ_BYTES);
        let polls = polls(&job);
        Ok(Box::new(QuinnLink {
            sender,
            receiver,
            connection,
            endpoint,
            runtime,
            reader,
            received: 0,
            polls,
        }))
    }
}

struct QuinnLink {
    sender: SendStream,
    receiver: RecvStream,
    connection: quinn::Connection,
    endpoint: quinn::Endpoint,
    runtime: Runtime,
    reader: FrameReader,
    received: u64,
    polls: bool,
}

/// The stream, read with patience.
struct Patient<'a> {
    runtime: &'a Runtime,
    receiver: &'a mut RecvStream,
}

impl Read for Patient<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Self { runtime, receiver } = self;
        match runtime.block_on(async { tokio::time::timeout(PATIENCE, receiver.read(out)).await }) {
            Ok(Ok(read)) => Ok(read.unwrap_or(0)),
            Ok(Err(quinn::ReadError::ConnectionLost(quinn::ConnectionError::ApplicationClosed(_)))) => Ok(0),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Link for QuinnLink {
    fn send(&mut self, _number: u64, message: &Bytes) -> Result<()> {
        let header = Bytes::copy_from_slice(&(message.len() as u32).to_be_bytes());
        let mut parts = [header, message.clone()];
        self.runtime.block_on(self.sender.write_all_chunks(&mut parts)).context("cannot send")
    }

    fn recv(&mut self) -> Result<Incoming> {
        let Self { reader, receiver, runtime, .. } = self;
        let mut stream = Patient { runtime, receiver };
        let mut attempt = || match reader.next(&mut stream) {
            Ok(frame) => Ok(Some(frame)),
            Err(error) if is_not_yet(&error) => Ok(None),
            Err(error) => Err(error).context("cannot receive"),
        };
        Ok(match if self.polls { poll_for(attempt)? } else { attempt()? } {
            Some(Frame::Message(_)) => {
                self.received += 1;
                Incoming::Message(self.received - 1)
            }
            Some(Frame::Closed) => Incoming::Closed,
            None => Incoming::Nothing,
        })
    }

    fn is_reliable(&self) -> bool {
        true
    }

    fn retransmitted(&self) -> Option<u64> {
        Some(self.connection.stats().path.lost_packets)
    }
}

impl Drop for QuinnLink {
    fn drop(&mut self) {
        self.connection.close(0u32.into(), b"");
        // The last packets: the runtime goes with the link.
        let idle = async { tokio::time::timeout(PATIENCE, self.endpoint.wait_idle()).await };
        let _ = self.runtime.block_on(idle);
    }
}

/// The cipher that denrei has where there are AES instructions.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn transport() -> Arc<quinn::TransportConfig> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(MAX_DATAGRAM_BYTES);
    let mut transport = quinn::TransportConfig::default();
    transport.mtu_discovery_config(Some(discovery));
    Arc::new(transport)
}

fn server_config() -> Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport());
    Ok(config)
}

fn client_config() -> Result<ClientConfig> {
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider())))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport());
    Ok(config)
}

/// Takes any certificate: both sides are this benchmark's.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
