//! TLS to receivers: own authorities, certificates on both sides, rotation, and who is not believed.

use super::receiver::Receiver;
use super::*;
use crate::config::Span;
use crate::ship::testing::kept;
use crate::ship::{Outcome, Outlets};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// An authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key for this name.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("writes");
    path
}

/// A receiver that has a certificate of `authority` for this name, and asks for one of `clients`.
async fn serve(
    protocol: OtlpProtocol,
    receiver: &Receiver,
    authority: &Authority,
    name: &str,
    clients: Option<&Authority>,
) -> SocketAddr {
    let (certificate, key) = authority.issue(name);
    if protocol == OtlpProtocol::Grpc {
        let mut tls = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
        if let Some(clients) = clients {
            tls = tls.client_ca_root(Certificate::from_pem(clients.pem()));
        }
        return receiver.grpc(Some(tls)).await;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = rustls::RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(clients.pem().as_bytes()).expect("a certificate");
            roots.add(root).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let tls = builder.with_single_cert(chain, key).expect("they go together");
    receiver.http(Some(Arc::new(tls))).await
}

fn start_with(protocol: OtlpProtocol, address: SocketAddr, change: impl FnOnce(&mut OtlpConfig)) -> Outlets {
    let mut config = OtlpConfig {
        protocol,
        endpoint: format!("https://localhost:{}", address.port()),
        batch_wait: Span::millis(10),
        ..OtlpConfig::default()
    };
    change(&mut config);
    assert_eq!(config.invalid(), []);
    let outlets = Outlets::default();
    start(&config, "node-1", &outlets).expect("starts");
    outlets
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < end, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_know_each_other_by_certificates_that_may_be_rotated() {
    for protocol in [OtlpProtocol::Http, OtlpProtocol::Grpc] {
        let folder = tempfile::tempdir().expect("a folder");
        let (servers, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
        let receiver = Receiver::new([]);
        // The certificate has another name than the endpoint.
        let address = serve(
            protocol,
            &receiver,
            &servers,
            "collector.internal",
            Some(&clients),
        )
        .await;
        let (certificate, key) = strangers.issue("agent");
        let outlets = start_with(protocol, address, |config| {
            config.ca_file = write(folder.path(), "ca.pem", &servers.pem());
            config.cert_file = write(folder.path(), "cert.pem", &certificate);
            config.key_file = write(folder.path(), "key.pem", &key);
            config.server_name = "collector.internal".to_owned();
        });
        let outlet = Arc::clone(&outlets.list()[0]);
        outlets.offer(&Arc::new(kept("0000000000000001")));
        until("a failure", || outlet.failures() >= 1).await;
        assert!(
            receiver.records().is_empty(),
            "{protocol:?}: strangers are not let in"
        );
        // One that the receiver knows takes its place.
        let (certificate, key) = clients.issue("agent");
        write(folder.path(), "key.pem", &key);
        write(folder.path(), "cert.pem", &certificate);
        until("the record", || outlet.counted(Outcome::Sent) == 1).await;
        assert_eq!(receiver.records(), [1], "{protocol:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_can_not_prove_its_name_gets_nothing() {
    type Change<'a> = Box<dyn FnOnce(&mut OtlpConfig) + 'a>;
    for protocol in [OtlpProtocol::Http, OtlpProtocol::Grpc] {
        let folder = tempfile::tempdir().expect("a folder");
        let (servers, others) = (Authority::new(), Authority::new());
        let receiver = Receiver::new([]);
        let address = serve(protocol, &receiver, &servers, "localhost", None).await;
        let ca = write(folder.path(), "ca.pem", &servers.pem());
        let other = write(folder.path(), "other.pem", &others.pem());
        let none = write(folder.path(), "none.pem", "nothing\n");
        let cases: [(&str, Change<'_>); 4] = [
            (
                "another authority",
                Box::new(|config| config.ca_file.clone_from(&other)),
            ),
            (
                "a file without certificates",
                Box::new(|config| config.ca_file.clone_from(&none)),
            ),
            (
                "no file",
                Box::new(|config| config.ca_file = "/nowhere/ca.pem".into()),
            ),
            (
                "another name",
                Box::new(|config| {
                    config.ca_file.clone_from(&ca);
                    config.server_name = "collector.internal".to_owned();
                }),
            ),
        ];
        for (case, change) in cases {
            let outlets = start_with(protocol, address, change);
            outlets.offer(&Arc::new(kept("0000000000000001")));
            until("a failure", || outlets.list()[0].failures() >= 1).await;
            assert_eq!(outlets.list()[0].waiting().0, 1, "{protocol:?}, {case}");
        }
        assert!(receiver.records().is_empty(), "{protocol:?}");
        let outlets = start_with(protocol, address, |config| config.ca_file.clone_from(&ca));
        outlets.offer(&Arc::new(kept("0000000000000001")));
        until("the record", || outlets.list()[0].counted(Outcome::Sent) == 1).await;
        assert_eq!(receiver.records(), [1], "{protocol:?}");
    }
}
