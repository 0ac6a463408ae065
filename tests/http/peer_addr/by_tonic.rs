//! What tonic provides about its clients.

use std::sync::mpsc;

use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::util::MapRequestLayer;

use super::*;

/// The key that a layer around the service finds.
fn recording(
    keys: mpsc::Sender<Result<Key, KeyError>>,
) -> impl Fn(Request<tonic::body::Body>) -> Request<tonic::body::Body> + Clone + Send + 'static {
    move |request| {
        keys.send(extract(PeerAddr, &request)).unwrap();
        request
    }
}

/// The key of one call, by this client to this server over these connections.
async fn key_of_a_call<IO>(
    client: Endpoint,
    builder: Server,
    incoming: impl futures_util::Stream<Item = std::io::Result<IO>> + Send + 'static,
) -> Result<Key, KeyError>
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let (keys, found) = mpsc::channel();
    let (_, health) = tonic_health::server::health_reporter();
    let server = builder
        .layer(MapRequestLayer::new(recording(keys)))
        .add_service(health)
        .serve_with_incoming(incoming);
    let server = tokio::spawn(server);
    let mut health = HealthClient::new(client.connect().await.unwrap());
    health.check(HealthCheckRequest::default()).await.unwrap();
    server.abort();
    found.recv().unwrap()
}

fn listen() -> (TcpIncoming, Endpoint) {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = incoming.local_addr().unwrap().port();
    let client = Endpoint::try_from(format!("http://127.0.0.1:{port}")).unwrap();
    (incoming, client)
}

/// A certificate for this machine, and its key.
fn certificate() -> (rcgen::Certificate, rcgen::KeyPair) {
    let names = ["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert, made.signing_key)
}

/// The client over TLS, to a server with this certificate.
fn over_tls(client: Endpoint, certificate: &rcgen::Certificate) -> Endpoint {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(certificate.pem()))
        .domain_name("localhost");
    let https = client.uri().to_string().replace("http:", "https:");
    let client = Endpoint::try_from(https).unwrap();
    client.tls_config(tls).unwrap()
}

#[tokio::test]
async fn tcp_connect_info_from_a_real_socket() {
    let (incoming, endpoint) = listen();
    let key = key_of_a_call(endpoint, Server::builder(), incoming).await;
    assert_eq!(key, Ok(client("127.0.0.1")));
}

#[tokio::test]
async fn tcp_connect_info_behind_its_own_tls() {
    let (certificate, key) = certificate();
    let identity = Identity::from_pem(certificate.pem(), key.serialize_pem());
    let server = Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))
        .unwrap();
    let (incoming, endpoint) = listen();
    let key = key_of_a_call(over_tls(endpoint, &certificate), server, incoming).await;
    assert_eq!(key, Ok(client("127.0.0.1")));
}

#[cfg(feature = "tonic-tls")]
#[tokio::test]
async fn tls_connect_info_behind_an_acceptor_of_the_servers() {
    use std::sync::Arc;

    use futures_util::StreamExt;
    use tokio_rustls::{TlsAcceptor, rustls};

    let (certificate, key) = certificate();
    let provider = rustls::crypto::ring::default_provider();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));

    let (incoming, endpoint) = listen();
    let incoming = incoming.then(move |stream| {
        let acceptor = acceptor.clone();
        async move { acceptor.accept(stream?).await }
    });
    let endpoint = over_tls(endpoint, &certificate);
    let key = key_of_a_call(endpoint, Server::builder(), incoming).await;
    assert_eq!(key, Ok(client("127.0.0.1")));
}

#[cfg(unix)]
#[tokio::test]
async fn uds_connect_info_as_a_unix_socket() {
    let (_near, far) = tokio::net::UnixStream::pair().unwrap();
    let mut request = Request::new(());
    request.extensions_mut().insert(far.connect_info());
    let error = extract(PeerAddr, &request).unwrap_err();
    assert!(error.to_string().contains("peer has no address"), "{error}");
}

#[test]
fn a_disconnected_client_without_address_is_no_server_error() {
    let mut request = Request::new(());
    request.extensions_mut().insert(TcpConnectInfo {
        local_addr: None,
        remote_addr: None,
    });
    assert_eq!(extract(PeerAddr, &request), Err(KeyError::Missing));
}
