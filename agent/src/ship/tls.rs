//! TLS to destinations.
//!
//! Owns: reading certificates and keys, again when their files have changed. Refuses: switching verification off.

use super::LinkConfig;
use super::file;
use super::link::given;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A file larger than this holds no certificates.
pub(super) const FILE_LIMIT: u64 = 4 << 20;

/// What tells one state of the files from another.
pub(crate) type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

/// The files as they are now. May block.
pub(super) fn stamp(config: &LinkConfig) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    [&config.ca_file, &config.cert_file, &config.key_file]
        .map(|file| {
            let facts = std::fs::metadata(given(file)?).ok()?;
            Some((facts.modified().ok()?, facts.len(), facts.ino()))
        })
        .to_vec()
}

/// How connections are made. May block.
///
/// # Errors
/// A file can't be read, or is not what it should be.
pub(super) fn client(config: &LinkConfig) -> Result<ClientConfig, String> {
    // Named here: no default of the process is relied on.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(config)?);
    match (given(&config.cert_file), given(&config.key_file)) {
        (Some(cert), Some(key)) => {
            let chain = certificates(cert)?;
            let key_of = PrivateKeyDer::from_pem_slice(&file::read(key, FILE_LIMIT)?)
                .map_err(|error| format!("{} holds no key that can be read: {error}", key.display()))?;
            builder.with_client_auth_cert(chain, key_of).map_err(|error| {
                format!(
                    "{} and {} do not go together: {error}",
                    cert.display(),
                    key.display()
                )
            })
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn roots(config: &LinkConfig) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = given(&config.ca_file) {
        for certificate in certificates(file)? {
            roots
                .add(certificate)
                .map_err(|error| format!("{} has no certificate of an authority: {error}", file.display()))?;
        }
        return Ok(roots);
    }
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this system has no certificates of authorities: name a file in ca_file".to_owned());
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = file::read(path, FILE_LIMIT)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| {
            format!(
                "{} holds no certificates that can be read: {error}",
                path.display()
            )
        })?;
    if found.is_empty() {
        return Err(format!("{} holds no certificate", path.display()));
    }
    Ok(found)
}
