//! TLS: which certificates are trusted, the client's own, and the provider of cryptography.

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

/// The TLS settings of a store.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct Tls {
    /// In PEM, trusted instead of the system's roots.
    pub(in crate::store::redis) authority: Option<Vec<u8>>,
    /// The client's certificate and its key, in PEM.
    pub(in crate::store::redis) client: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the servers' certificates, if it differs from their addresses.
    pub(in crate::store::redis) server_name: Option<String>,
    /// Whether the servers' certificates are not checked.
    pub(in crate::store::redis) accepts_any_certificate: bool,
}

impl Tls {
    pub(in crate::store::redis) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The server with these settings, if it uses TLS.
    ///
    /// # Errors
    ///
    /// If a setting cannot be used, and if there are some for a server without TLS.
    pub(in crate::store::redis) fn apply(
        &self,
        server: ConnectionInfo,
    ) -> Result<ConnectionInfo, StoreError> {
        match (is_over_tls(server.addr()), self.is_default()) {
            (_, true) => Ok(server),
            (false, false) => Err(wrong(
                "certificates and the servers' name are for TLS: use rediss://",
            )),
            (true, false) => self.over_tls(server),
        }
    }

    #[cfg(feature = "redis-tls")]
    fn over_tls(&self, server: ConnectionInfo) -> Result<ConnectionInfo, StoreError> {
        use crate::store::redis::error::of_connecting;

        self.check().map_err(wrong)?;
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
        let server = client.get_connection_info().clone();
        let mut address = server.addr().clone();
        if let ConnectionAddr::TcpTls { insecure, .. } = &mut address {
            *insecure = self.accepts_any_certificate;
        }
        Ok(server.set_addr(address))
    }

    /// The client treats a text without a certificate as none, and reports an unreadable key or
    /// name only when it connects.
    #[cfg(feature = "redis-tls")]
    fn check(&self) -> Result<(), &'static str> {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

        let has_certificates = |pem: &[u8]| {
            let mut certificates = CertificateDer::pem_slice_iter(pem).peekable();
            certificates.peek().is_some() && certificates.all(|one| one.is_ok())
        };
        if let Some(authority) = &self.authority
            && !has_certificates(authority)
        {
            return Err("ca_certificate: expected certificates in PEM");
        }
        if let Some((certificate, key)) = &self.client
            && (!has_certificates(certificate) || PrivateKeyDer::from_pem_slice(key).is_err())
        {
            return Err(
                "client_certificate: expected a certificate and its private key, both in PEM",
            );
        }
        if let Some(name) = &self.server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            return Err(
                "tls_server_name: expected a name that certificates are for, such as \
                 \"cache.example.com\"",
            );
        }
        let is_checked = self.authority.is_some() || self.server_name.is_some();
        if self.accepts_any_certificate && is_checked {
            return Err(
                "danger_accept_invalid_certs: no certificate is checked then, leave out \
                 ca_certificate and tls_server_name",
            );
        }
        Ok(())
    }

    /// No URL leads here.
    #[cfg(not(feature = "redis-tls"))]
    fn over_tls(&self, _server: ConnectionInfo) -> Result<ConnectionInfo, StoreError> {
        Err(wrong(
            "TLS needs the feature \"redis-tls\" of tower-throttle",
        ))
    }
}

fn wrong(setting: &'static str) -> StoreError {
    StoreError::with_source(StoreErrorKind::Configuration, setting)
}
