//! TLS: trusted certificates, the client's certificate, and the provider of cryptography.

use redis::{ConnectionAddr, ConnectionInfo};

use crate::error::{StoreError, StoreErrorKind};

pub(super) fn is_over_tls(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::TcpTls { .. })
}

/// Installs ring's cryptography if the process has installed none: the client uses the process's
/// provider, and panics if there is none.
///
/// The first choice wins, so this is called when connecting: until then, an application that has
/// only read an address, for example in a configuration, can still make its own choice.
#[cfg(feature = "redis-tls")]
pub(super) fn choose_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// No URL leads here.
#[cfg(not(feature = "redis-tls"))]
pub(super) fn choose_cryptography() {}

/// The certificates of a store, in PEM.
#[derive(Clone, Default)]
pub(in crate::store::redis) struct Certificates {
    /// Trusted instead of the system's roots.
    pub(in crate::store::redis) authority: Option<Vec<u8>>,
    pub(in crate::store::redis) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.authority.is_none() && self.client.is_none()
    }

    /// The server, with these certificates if it uses TLS.
    ///
    /// # Errors
    ///
    /// If a certificate cannot be read, and if there are some for a server without TLS.
    pub(in crate::store::redis) fn apply(
        &self,
        server: ConnectionInfo,
    ) -> Result<ConnectionInfo, StoreError> {
        match (is_over_tls(server.addr()), self.is_empty()) {
            (false, true) => Ok(server),
            (false, false) => Err(StoreError::with_source(
                StoreErrorKind::Configuration,
                "ca_certificate and client_certificate are for TLS: use rediss://",
            )),
            (true, _) => self.over_tls(server),
        }
    }

    #[cfg(feature = "redis-tls")]
    fn over_tls(&self, server: ConnectionInfo) -> Result<ConnectionInfo, StoreError> {
        use crate::store::redis::error::of_connecting;

        if self.is_empty() {
            return Ok(server);
        }
        self.check()?;
        let client_tls = self.client.clone();
        let client_tls = client_tls.map(|(client_cert, client_key)| redis::ClientTlsConfig {
            client_cert,
            client_key,
        });
        let certificates = redis::TlsCertificates {
            client_tls,
            root_cert: self.authority.clone(),
        };
        let client = redis::Client::build_with_tls(server, certificates).map_err(of_connecting)?;
        Ok(client.get_connection_info().clone())
    }

    /// The client treats a text without a certificate as none, and reports an unreadable key only
    /// when it connects.
    #[cfg(feature = "redis-tls")]
    fn check(&self) -> Result<(), StoreError> {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};

        let has_certificates = |pem: &[u8]| {
            let mut certificates = CertificateDer::pem_slice_iter(pem).peekable();
            certificates.peek().is_some() && certificates.all(|one| one.is_ok())
        };
        let wrong = if self
            .authority
            .as_deref()
            .is_some_and(|pem| !has_certificates(pem))
        {
            "ca_certificate: expected certificates in PEM"
        } else if let Some((certificate, key)) = &self.client
            && (!has_certificates(certificate) || PrivateKeyDer::from_pem_slice(key).is_err())
        {
            "client_certificate: expected a certificate and its private key, both in PEM"
        } else {
            return Ok(());
        };
        Err(StoreError::with_source(
            StoreErrorKind::Configuration,
            wrong,
        ))
    }

    /// No URL leads here.
    #[cfg(not(feature = "redis-tls"))]
    fn over_tls(&self, _server: ConnectionInfo) -> Result<ConnectionInfo, StoreError> {
        Err(StoreError::with_source(
            StoreErrorKind::Configuration,
            "TLS needs the feature \"redis-tls\" of tower-throttle",
        ))
    }
}
