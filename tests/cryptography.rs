//! The application chooses the cryptography, until something connects over TLS.
//!
//! A program of its own with one test, as a process chooses only once.
#![cfg(all(feature = "config", feature = "redis-tls"))]

use rcgen::CertifiedKey;
use rustls::crypto::{CryptoProvider, ring};
use tower_throttle::{Config, RedisStore};

#[tokio::test]
async fn the_application_can_choose_cryptography_after_reading_urls() {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for address in [
        "rediss://localhost",
        "rediss-sentinel://localhost/main",
        "rediss-cluster://localhost",
    ] {
        let file = format!("store = {address:?}\npolicy = []");
        let config: Config = file.parse().expect(address);
        assert!(CryptoProvider::get_default().is_none(), "{address}");
        config.connect_lazy().expect(address);
        assert!(CryptoProvider::get_default().is_none(), "{address}");
        let builder = RedisStore::builder(address)
            .ca_certificate(cert.pem())
            .client_certificate(cert.pem(), signing_key.serialize_pem());
        builder.connect_lazy().expect(address);
        assert!(CryptoProvider::get_default().is_none(), "{address}");
    }
    ring::default_provider()
        .install_default()
        .expect("nobody has chosen yet");
}
