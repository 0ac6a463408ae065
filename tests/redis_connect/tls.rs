//! TLS, with certificates made for the test.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tower_throttle::{RedisStore, RedisStoreBuilder, StoreErrorKind};

use crate::support::redis::{Server, free_port};
use crate::{assert_counts, told};

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// A certificate for this name, and its key.
    fn issue(&self, name: &str) -> [String; 2] {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }
}

struct TlsServer {
    server: Server,
    url: String,
    _files: TempDir,
}

impl TlsServer {
    /// `authenticates` is "yes" where clients need a certificate.
    fn start(authority: &Authority, name: &str, authenticates: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let [certificate, key] = authority.issue(name);
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (ca, certificate, key) = (
            file("ca.pem", &authority.pem),
            file("server.pem", &certificate),
            file("server.key", &key),
        );
        let port = free_port().to_string();
        let server = Server::start_with(&[
            "--tls-port",
            &port,
            "--tls-ca-cert-file",
            &ca,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-auth-clients",
            authenticates,
        ]);
        Self {
            server,
            url: format!("rediss://127.0.0.1:{port}"),
            _files: files,
        }
    }

    fn builder(&self) -> RedisStoreBuilder {
        RedisStore::builder(&self.url)
    }
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, "127.0.0.1", "no");
    let builder = server.builder().ca_certificate(authority.pem.as_str());
    assert_counts(builder.connect().await.unwrap()).await;
    assert_eq!(server.server.keys().len(), 1);
}

#[tokio::test]
async fn a_certificate_of_nobody_known_or_for_another_name_is_refused() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, "127.0.0.1", "no");
    let other = Authority::new();
    let elsewhere = TlsServer::start(&authority, "127.0.0.2", "no");
    for builder in [
        server.builder(),
        server.builder().ca_certificate(other.pem.as_str()),
        elsewhere.builder().ca_certificate(authority.pem.as_str()),
    ] {
        let error = builder.connect().await.unwrap_err();
        let told = told(&error);
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{told}");
        assert!(told.contains("ca_certificate"), "{told}");
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_the_server_asks_for_one() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, "127.0.0.1", "yes");
    let builder = || server.builder().ca_certificate(authority.pem.as_str());
    assert!(builder().connect().await.is_err());
    let [certificate, key] = authority.issue("client");
    let store = builder()
        .client_certificate(certificate, key)
        .connect()
        .await;
    assert_counts(store.unwrap()).await;
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_refused_before_connecting() {
    let url = "rediss://:hunter2@localhost";
    let builder = |url| RedisStore::builder(url);
    for (builder, why) in [
        (builder(url).ca_certificate("no certificate"), "PEM"),
        (builder(url).client_certificate("hunter2", "hunter2"), "PEM"),
        (
            builder("redis://localhost").ca_certificate("any"),
            "use rediss://",
        ),
    ] {
        let error = builder.connect_lazy().unwrap_err();
        let told = told(&error);
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{told}");
        assert!(told.contains(why) && !told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn a_server_without_tls_fails_and_does_not_hang() {
    let server = Server::start();
    let url = format!("rediss://127.0.0.1:{}", server.port());
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unreachable,
        "{}",
        told(&error)
    );
}
