//! TLS, with certificates made for the test.

use futures_util::future::join_all;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tower_throttle::{RedisStore, RedisStoreBuilder, StoreErrorKind};

use crate::connect::cluster::SUBJECTS;
use crate::connect::load::used;
use crate::connect::wrong_urls::each_way;
use crate::connect::{GENEROUS, assert_counts, client_list, limiter, text_of};
use support::cluster::Cluster;
use support::redis::{Server, free_port};
use support::sentinel::{NAME, Sentinel};

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        Self::named("test")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// A certificate for this name, and its key.
    fn issue(&self, name: &str) -> [String; 2] {
        self.sign(params_for(name))
    }

    fn sign(&self, params: CertificateParams) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }
}

fn params_for(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).unwrap()
}

/// A server's certificate, in files.
struct Files(TempDir);

impl Files {
    fn of(authority: &Authority, certificate: CertificateParams) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let [certificate, key] = authority.sign(certificate);
        for (name, text) in [
            ("ca.pem", &authority.pem),
            ("server.pem", &certificate),
            ("server.key", &key),
        ] {
            std::fs::write(files.path(name), text).unwrap();
        }
        files
    }

    /// A certificate for this name that is its own authority.
    #[cfg(feature = "redis-tls-insecure")]
    fn self_signed(name: &str) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let key = KeyPair::generate().unwrap();
        let certificate = params_for(name).self_signed(&key).unwrap().pem();
        for (name, text) in [
            ("ca.pem", &certificate),
            ("server.pem", &certificate),
            ("server.key", &key.serialize_pem()),
        ] {
            std::fs::write(files.path(name), text).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// A server with these files.
    fn start<S>(&self, start: impl FnOnce(&[&str]) -> S) -> S {
        start(&[
            "--tls-ca-cert-file",
            &self.path("ca.pem"),
            "--tls-cert-file",
            &self.path("server.pem"),
            "--tls-key-file",
            &self.path("server.key"),
        ])
    }
}

struct TlsServer {
    server: Server,
    url: String,
    files: Files,
}

impl TlsServer {
    fn start(authority: &Authority, name: &str, authenticates: &str) -> Self {
        let options = ["--tls-auth-clients", authenticates];
        Self::start_with(authority, params_for(name), &options)
    }

    fn start_with(authority: &Authority, certificate: CertificateParams, further: &[&str]) -> Self {
        Self::over(Files::of(authority, certificate), further)
    }

    fn over(files: Files, further: &[&str]) -> Self {
        let port = free_port().to_string();
        let server = files.start(|options| {
            Server::start_with(&[options, further, &["--tls-port", &port]].concat())
        });
        Self {
            server,
            url: format!("rediss://127.0.0.1:{port}"),
            files,
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
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, "127.0.0.1", "no");
    let other = Authority::new();
    for builder in [
        server.builder(),
        server.builder().ca_certificate(other.pem.as_str()),
    ] {
        assert_refused(builder, "set ca_certificate").await;
    }
}

async fn assert_refused(builder: RedisStoreBuilder, advice: &str) {
    let error = builder.connect().await.unwrap_err();
    let told = text_of(&error);
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{told}");
    assert!(told.contains(advice), "{told}");
    let is_about_authorities = advice.contains("ca_certificate");
    assert_eq!(
        told.contains("ca_certificate"),
        is_about_authorities,
        "{told}"
    );
}

/// Its authority is the right one.
#[tokio::test]
async fn certificates_for_another_name_or_time_are_refused_as_such() {
    let authority = Authority::new();
    let other_host = params_for("127.0.0.2");
    let [mut expired, mut early] = [(); 2].map(|()| params_for("127.0.0.1"));
    expired.not_after = date_time_ymd(2020, 1, 1);
    early.not_before = date_time_ymd(4000, 1, 1);
    for (certificate, advice) in [
        (other_host, "is for other names"),
        (expired, "has expired or is not valid yet"),
        (early, "has expired or is not valid yet"),
    ] {
        let server = TlsServer::start_with(&authority, certificate, &[]);
        let builder = server.builder().ca_certificate(authority.pem.as_str());
        assert_refused(builder, advice).await;
    }
}

#[tokio::test]
async fn a_client_shows_its_certificate_where_the_server_asks_for_one() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, "127.0.0.1", "yes");
    let builder = || server.builder().ca_certificate(authority.pem.as_str());
    let told = text_of(&builder().connect().await.unwrap_err());
    assert!(told.contains("certificate"), "{told}");
    let [certificate, key] = authority.issue("client");
    let store = builder()
        .client_certificate(certificate, key)
        .connect()
        .await;
    assert_counts(store.unwrap()).await;
}

/// It is for the operator to mend, however the server says so.
#[tokio::test]
async fn refused_and_missing_client_certificates_are_recognized() {
    let authority = Authority::new();
    for protocol in ["TLSv1.2", "TLSv1.3"] {
        let server = TlsServer::start_with(
            &authority,
            params_for("127.0.0.1"),
            &["--tls-auth-clients", "yes", "--tls-protocols", protocol],
        );
        let builder = || server.builder().ca_certificate(authority.pem.as_str());
        let showing = |by: Authority| {
            let [certificate, key] = by.issue("client");
            builder().client_certificate(certificate, key)
        };
        for builder in [
            builder(),
            showing(Authority::named("other")),
            // Of the same name as the right one.
            showing(Authority::new()),
        ] {
            let error = builder.connect().await.unwrap_err();
            let told = text_of(&error);
            assert_eq!(error.kind(), StoreErrorKind::Configuration, "{told}");
            assert!(told.contains("client_certificate"), "{told}");
        }
    }
}

/// The name in a certificate that no server is reached by.
const CACHE: &str = "cache.test";

/// Nobody can look it up, as nobody has to.
#[tokio::test]
async fn a_server_is_known_by_the_name_in_its_certificate() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, CACHE, "no");
    let builder = || server.builder().ca_certificate(authority.pem.as_str());
    assert_refused(builder(), "set tls_server_name").await;
    assert_refused(builder().tls_server_name("other.test"), "for other names").await;
    let store = builder().tls_server_name(CACHE).connect().await;
    assert_counts(store.unwrap()).await;
}

#[tokio::test]
async fn nodes_are_known_by_the_announced_name_in_their_certificate() {
    let authority = Authority::new();
    let files = Files::of(&authority, params_for(CACHE));
    let cluster = files
        .start(|options| Cluster::over_tls(&[options, &["--tls-auth-clients", "no"]].concat()));
    let builder = || RedisStore::builder(&cluster.url()).ca_certificate(authority.pem.as_str());
    assert_refused(builder(), "for other names").await;
    let store = builder().tls_server_name(CACHE).connect().await;
    let limiter = limiter(store.unwrap(), GENEROUS);
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        assert_eq!(decision.store_failure(), None, "{subject}");
    }
    assert!(cluster.masters.iter().all(|node| !node.keys().is_empty()));
}

#[tokio::test]
async fn sentinels_and_masters_are_known_by_their_certificates_name() {
    let authority = Authority::new();
    let master = TlsServer::start(&authority, CACHE, "no");
    let files = &master.files;
    let sentinel_port = free_port();
    let lines = format!(
        "tls-port {sentinel_port}\ntls-ca-cert-file {}\ntls-cert-file {}\ntls-key-file {}\n\
         tls-replication yes\ntls-auth-clients no",
        files.path("ca.pem"),
        files.path("server.pem"),
        files.path("server.key"),
    );
    let (_, master_port) = master.url.rsplit_once(':').unwrap();
    let _sentinel = Sentinel::watching(master_port.parse().unwrap(), &lines);
    let url = format!("rediss-sentinel://127.0.0.1:{sentinel_port}/{NAME}");
    let builder = || RedisStore::builder(&url).ca_certificate(authority.pem.as_str());
    assert_refused(builder(), "for other names").await;
    let store = builder().tls_server_name(CACHE).connect().await;
    assert_counts(store.unwrap()).await;
    assert_eq!(master.server.keys().len(), 1);
}

/// A certificate that nobody has signed but itself, and for another name.
#[cfg(feature = "redis-tls-insecure")]
#[tokio::test]
async fn any_certificate_is_accepted_only_on_dangerous_request() {
    let files = Files::self_signed("somebody.else");
    let server = TlsServer::over(files, &["--tls-auth-clients", "no"]);
    assert_refused(server.builder(), "set ca_certificate").await;
    let store = server
        .builder()
        .danger_accept_invalid_certs()
        .connect()
        .await;
    assert_counts(store.unwrap()).await;

    let files = Files::self_signed("somebody.else");
    let cluster = files
        .start(|options| Cluster::over_tls(&[options, &["--tls-auth-clients", "no"]].concat()));
    let builder = RedisStore::builder(&cluster.url()).danger_accept_invalid_certs();
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        assert_eq!(decision.store_failure(), None, "{subject}");
    }
}

/// The client would honour it in any URL.
#[tokio::test]
async fn no_url_can_switch_the_check_of_certificates_off() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, "127.0.0.1", "no");
    let rest = server.url.strip_prefix("rediss://").unwrap();
    for url in [
        format!("rediss://{rest}/#insecure"),
        format!("rediss-cluster://{rest}/#insecure"),
        format!("rediss-sentinel://{rest}/main#insecure"),
        format!("rediss-cluster://{rest}#insecure"),
    ] {
        let error = RedisStore::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration);
        assert!(
            text_of(&error).contains("contains a #"),
            "{}",
            text_of(&error)
        );
    }
}

/// How many clients a node has on a port.
fn clients(node: &Server, port: u16) -> usize {
    let list = client_list(node);
    let address = format!(" laddr=127.0.0.1:{port} ");
    list.lines().filter(|line| line.contains(&address)).count()
}

#[tokio::test]
async fn every_cluster_node_speaks_tls_also_when_a_slot_moves() {
    let authority = Authority::new();
    let files = Files::of(&authority, params_for("127.0.0.1"));
    let cluster = files.start(Cluster::over_tls);
    let [certificate, key] = authority.issue("client");
    let builder = RedisStore::builder(&cluster.url()).ca_certificate(authority.pem.as_str());
    let store = builder.client_certificate(certificate, key).connect().await;
    let limiter = limiter(store.unwrap(), GENEROUS);
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        assert_eq!(decision.store_failure(), None, "{subject}");
    }
    let (from, key) = cluster.master_of(":api");
    let to = (from + 1) % 3;
    let slot = cluster.begin_to_move(&key, from, to);
    cluster.move_key(&key, from, to);
    for is_moved in [false, true] {
        // Redirected by ASK, then by MOVED.
        if is_moved {
            cluster.end_move(slot, from, to);
        }
        for subject in SUBJECTS {
            let decision = limiter.check("api", subject).await.unwrap();
            assert_eq!(decision.store_failure(), None, "{subject}");
        }
    }
    for subject in SUBJECTS {
        assert_eq!(used(&limiter, subject).await, 3, "{subject}");
    }
    for (master, tls_port) in cluster.masters.iter().zip(&cluster.tls_ports) {
        assert!(!master.keys().is_empty());
        assert!(clients(master, *tls_port) > 0);
        // The one that looks.
        assert_eq!(clients(master, master.port()), 1);
    }
}

#[tokio::test]
async fn unusable_certificates_are_refused_before_connecting() {
    let url = "rediss://:hunter2@localhost";
    let builder = |url| RedisStore::builder(url);
    for (builder, why) in [
        (builder(url).ca_certificate("no certificate"), "PEM"),
        (builder(url).client_certificate("hunter2", "hunter2"), "PEM"),
        (
            builder("redis://localhost").ca_certificate("any"),
            "use rediss://",
        ),
        (
            builder("redis-cluster://localhost").tls_server_name(CACHE),
            "use rediss://",
        ),
        (builder(url).tls_server_name("hunter2 "), "tls_server_name"),
        (builder(url).tls_server_name(""), "tls_server_name"),
        #[cfg(feature = "redis-tls-insecure")]
        (
            builder(url)
                .tls_server_name(CACHE)
                .danger_accept_invalid_certs(),
            "no certificate is checked",
        ),
    ] {
        let error = builder.connect_lazy().unwrap_err();
        let told = text_of(&error);
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{told}");
        assert!(told.contains(why) && !told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn a_server_without_tls_fails_and_does_not_hang() {
    let server = Server::start();
    let other = axum::serve(
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        axum::Router::new(),
    );
    let other_port = other.local_addr().unwrap().port();
    tokio::spawn(other.into_future());
    let connecting = each_way("rediss", server.port()).into_iter();
    let connecting = connecting.chain(each_way("rediss", other_port));
    let errors = join_all(connecting.map(RedisStoreBuilder::connect)).await;
    for error in errors.into_iter().map(Result::unwrap_err) {
        let told = text_of(&error);
        assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{told}");
        assert!(told.contains("with redis if it does not"), "{told}");
    }
}

#[tokio::test]
async fn a_server_that_wants_tls_and_one_that_does_not_are_recognized() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, "127.0.0.1", "no");
    let (_, port) = server.url.rsplit_once(':').unwrap();
    for builder in each_way("redis", port.parse().unwrap()) {
        let error = builder.connect().await.unwrap_err();
        let told = text_of(&error);
        assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{told}");
        assert!(told.contains("rediss if it speaks TLS"), "{told}");
    }
}
