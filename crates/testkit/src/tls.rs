//! A private authority, and servers that it vouches for.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// An authority that nobody knows until its certificate is named.
pub struct Authority {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

/// What a server proves itself with.
#[derive(Debug, Clone)]
pub struct Identity(pub(crate) Arc<ServerConfig>);

/// When a certificate is valid. Both are so far away that no clock of a machine that runs tests matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// From 2000 to 2100.
    Now,
    /// Until 2001.
    Past,
}

impl Authority {
    /// A new one of this name.
    ///
    /// # Panics
    /// When no key can be made.
    pub fn new(name: &str) -> Self {
        let mut params = params(&[], name, Validity::Now);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = must(KeyPair::generate());
        Self { certificate: must(params.self_signed(&key)), key }
    }

    /// Its certificate, as files hold it.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A certificate for a server with these names or addresses.
    ///
    /// # Panics
    /// When a name cannot stand in a certificate.
    pub fn issue(&self, hosts: &[&str], validity: Validity) -> Identity {
        let key = must(KeyPair::generate());
        let certificate =
            must(params(hosts, "server", validity).signed_by(&key, &self.certificate, &self.key));
        let provider = Arc::new(ring::default_provider());
        let config =
            must(ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions())
                .with_no_client_auth()
                .with_single_cert(
                    vec![certificate.der().clone()],
                    PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
                );
        Identity(Arc::new(must(config)))
    }
}

fn params(hosts: &[&str], name: &str, validity: Validity) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = must(CertificateParams::new(hosts));
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = match validity {
        Validity::Now => date_time_ymd(2100, 1, 1),
        Validity::Past => date_time_ymd(2001, 1, 1),
    };
    params
}

fn must<T, E: std::fmt::Display>(made: Result<T, E>) -> T {
    match made {
        Ok(made) => made,
        Err(error) => panic!("no certificate for the test: {error}"),
    }
}
