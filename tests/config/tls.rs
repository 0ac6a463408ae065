//! `tls`: the certificates of the store's servers, and this process's own.

use tower_throttle::Config;

use super::with_policy;

const POLICY: &str = "name = \"client\"\nalgorithm = \"gcra\"\nlimit = \"100/min\"\nkey = \"user\"";

/// A file with this store and this table, in lines 1 and 2.
fn file(store: &str, tls: &str) -> String {
    with_policy(POLICY).replacen("\"memory\"", &format!("{store:?}\ntls = {tls}"), 1)
}

#[test]
fn the_danger_is_refused_with_the_feature_that_it_needs() {
    let refused = read_danger();
    match cfg!(feature = "redis-tls-insecure") {
        true => assert_eq!(refused, None),
        false => {
            let refused = refused.unwrap();
            let start = "line 2: tls.danger_accept_invalid_certs: needs the feature \
                         \"redis-tls-insecure\"";
            assert!(refused.starts_with(start), "{refused}");
        }
    }
}

fn read_danger() -> Option<String> {
    let text = file("memory", "{ danger_accept_invalid_certs = true }");
    let read = text.parse::<Config>();
    read.err().map(|error| error.to_string())
}

#[cfg(not(feature = "redis-tls"))]
#[test]
fn certificates_are_refused_with_the_feature_that_they_need() {
    for tls in [
        "{}",
        "{ ca_file = \"ca.pem\" }",
        "{ server_name = \"a.test\" }",
    ] {
        let refused = super::refusal(&file("memory", tls));
        let start = "line 2: tls: needs the feature \"redis-tls\"";
        assert!(refused.starts_with(start), "{refused}");
    }
}

#[cfg(feature = "redis-tls")]
mod over_tls {
    use std::fs;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tempfile::TempDir;

    use super::*;
    use crate::{read, refusal};
    use support::redis::{Server, free_port};

    /// In the certificate of the server, which no server is reached by.
    const CACHE: &str = "cache.test";

    struct TlsServer {
        server: Server,
        url: String,
        files: TempDir,
    }

    impl TlsServer {
        /// Its certificate is its own authority. It wants one of each client, and takes its own.
        fn start() -> Self {
            let CertifiedKey { cert, signing_key } =
                generate_simple_self_signed([CACHE.to_owned()]).unwrap();
            let files = tempfile::tempdir().unwrap();
            let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
            let [certificate, key] = ["server.pem", "server.key"].map(path);
            fs::write(&certificate, cert.pem()).unwrap();
            fs::write(&key, signing_key.serialize_pem()).unwrap();
            let port = free_port().to_string();
            let server = Server::start_with(&[
                "--tls-ca-cert-file",
                &certificate,
                "--tls-cert-file",
                &certificate,
                "--tls-key-file",
                &key,
                "--tls-port",
                &port,
            ]);
            Self {
                server,
                url: format!("rediss://127.0.0.1:{port}"),
                files,
            }
        }

        fn path(&self, name: &str) -> String {
            self.files.path().join(name).to_str().unwrap().to_owned()
        }

        /// This process's certificate and key, and these other fields.
        fn file(&self, more: &str) -> String {
            let [certificate, key] = ["server.pem", "server.key"].map(|name| self.path(name));
            let own = format!("certificate_file = {certificate:?}, key_file = {key:?}");
            file(&self.url, &format!("{{ {own}, {more} }}"))
        }
    }

    async fn connects(text: &str) -> bool {
        read(text).connect().await.is_ok()
    }

    #[tokio::test]
    async fn a_server_is_known_by_the_authority_and_the_name_in_the_file() {
        let server = TlsServer::start();
        let authority = format!("ca_file = {:?}", server.path("server.pem"));
        let name = format!("server_name = {CACHE:?}");
        assert!(connects(&server.file(&format!("{authority}, {name}"))).await);
        for one_alone in [&authority, &name] {
            assert!(!connects(&server.file(one_alone)).await, "{one_alone}");
        }
        assert_eq!(server.server.keys(), [""; 0], "only connecting was tried");
    }

    #[cfg(feature = "redis-tls-insecure")]
    #[tokio::test]
    async fn any_certificate_is_accepted_if_the_file_asks_for_the_danger() {
        let server = TlsServer::start();
        for (accepts, does_connect) in [("true", true), ("false", false)] {
            let text = server.file(&format!("danger_accept_invalid_certs = {accepts}"));
            assert_eq!(connects(&text).await, does_connect);
        }
        let name = format!("server_name = {CACHE:?}");
        let refused = refusal(&server.file(&format!("danger_accept_invalid_certs = true, {name}")));
        let problem = "line 2: tls.danger_accept_invalid_certs: no certificate is checked then";
        assert!(refused.starts_with(problem), "{refused}");
    }

    #[test]
    fn unusable_tls_files_are_refused_by_their_field() {
        let server = TlsServer::start();
        let [certificate, key, missing, other] =
            ["server.pem", "server.key", "missing.pem", "other.pem"].map(|name| server.path(name));
        fs::write(&other, "hunter2").unwrap();
        for (tls, problem) in [
            (format!("ca_file = {missing:?}"), "ca_file: the file "),
            // It has no end.
            ("ca_file = \"/dev/zero\"".to_owned(), "ca_file: the file "),
            (
                format!("ca_file = {other:?}"),
                "ca_file: expected a file with certificates",
            ),
            (
                format!("ca_file = {key:?}"),
                "ca_file: expected a file with certificates",
            ),
            (
                "ca_file = 5".to_owned(),
                "ca_file: got 5, expected the path",
            ),
            (
                format!("certificate_file = {certificate:?}"),
                "key_file: is missing",
            ),
            (
                format!("key_file = {key:?}"),
                "certificate_file: is missing",
            ),
            (
                format!("certificate_file = {certificate:?}, key_file = {other:?}"),
                "key_file: expected a file with a private key",
            ),
            (
                format!("certificate_file = {other:?}, key_file = {key:?}"),
                "certificate_file: expected a file with certificates",
            ),
            (
                "server_name = \"a b\"".to_owned(),
                "server_name: got \"a b\", expected a name",
            ),
            (
                "ca = \"x\"".to_owned(),
                "ca: is not a field here, expected one of ca_file",
            ),
        ] {
            // Also of a file that is tried in memory.
            for store in ["memory", &server.url] {
                let refused = refusal(&file(store, &format!("{{ {tls} }}")));
                let start = format!("line 2: tls.{problem}");
                assert!(refused.starts_with(&start), "{refused}");
                assert!(!refused.contains("hunter2"), "{refused}");
            }
        }
    }

    #[test]
    fn certificates_for_a_server_without_tls_are_refused() {
        for store in ["redis://h", "redis-cluster://h", "redis-sentinel://h/main"] {
            let refused = refusal(&file(store, "{ server_name = \"cache.test\" }"));
            assert!(refused.starts_with("line 2: tls: "), "{refused}");
            assert!(refused.contains("use rediss://"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_read_shows_nothing_of_its_keys() {
        let server = TlsServer::start();
        let config: Config = server.file("server_name = \"cache.test\"").parse().unwrap();
        let key = fs::read_to_string(server.path("server.key")).unwrap();
        let part = key.lines().nth(1).unwrap();
        assert!(!format!("{config:?}").contains(part));
    }
}
