//! Whether destinations can be reached, for `infertap doctor`.
//!
//! Owns: trying to connect, reading the files that the agent would read, and whether lines can be written. Refuses: sending or
//! writing anything.

use super::{JsonLinesSection, LinkConfig, json_lines, link, tls};
use std::ffi::CString;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

/// Time for one address.
const CONNECT: Duration = Duration::from_secs(2);
/// Addresses of a host that are tried.
const ADDRESSES: usize = 4;

/// Where it would connect to; else why it could not. Blocks for seconds where nobody answers.
///
/// # Errors
/// The endpoint is no URL, nobody listens there, or a file can't be used.
pub fn reach(link: &LinkConfig) -> Result<String, String> {
    let url = link::endpoint(&link.endpoint)?;
    link.request_headers()?;
    if url.scheme() == "https" {
        tls::client(link)?;
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{host} has no address: {error}"))?;
    let mut why = format!("{host} has no address");
    for address in found.take(ADDRESSES) {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(_) => return Ok(format!("{host} port {port} can be connected to")),
            Err(error) => why = format!("{host} port {port} can't be connected to: {error}"),
        }
    }
    Err(why)
}

/// Where lines would be written; `None`: nowhere. Else why they could not.
///
/// # Errors
/// The file can't be written, or not be made in its folder.
pub fn writable(section: &JsonLinesSection) -> Option<Result<String, String>> {
    if !section.on() {
        return None;
    }
    if section.path == json_lines::STDOUT {
        return Some(Ok("lines go to standard output".to_owned()));
    }
    let file = Path::new(&section.path);
    let place = if file.exists() {
        file
    } else {
        file.parent().unwrap_or(file)
    };
    Some(match may_write(place) {
        Ok(()) => Ok(format!("{} can be written", file.display())),
        Err(error) => Err(format!(
            "{} can't be written: {}: {error}",
            file.display(),
            place.display()
        )),
    })
}

fn may_write(path: &Path) -> std::io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name ends with a zero and lives as long as the call.
    if unsafe { libc::access(name.as_ptr(), libc::W_OK) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::otlp::OtlpConfig;

    #[test]
    fn who_listens_is_reached_and_files_are_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("an address").port();
        let mut config = OtlpConfig {
            endpoint: format!("http://127.0.0.1:{port}"),
            ..OtlpConfig::default()
        };
        let reached = reach(&config.link()).expect("somebody listens");
        assert_eq!(reached, format!("127.0.0.1 port {port} can be connected to"));
        config.bearer_token_file = "/nowhere/token".into();
        let why = reach(&config.link()).expect_err("no token");
        assert!(why.contains("/nowhere/token"), "{why}");
        config.bearer_token_file = "".into();
        drop(listener);
        let why = reach(&config.link()).expect_err("nobody listens");
        assert!(why.contains("can't be connected to"), "{why}");
    }

    #[test]
    fn lines_need_a_file_or_a_folder_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &Path| {
            writable(&JsonLinesSection {
                path: path.to_string_lossy().into_owned(),
                ..JsonLinesSection::default()
            })
        };
        assert_eq!(at(Path::new("")), None);
        assert!(matches!(at(Path::new("stdout")), Some(Ok(_))));
        let file = folder.path().join("records.jsonl");
        assert!(matches!(at(&file), Some(Ok(_))), "it can be made");
        std::fs::write(&file, "").expect("writes");
        assert!(matches!(at(&file), Some(Ok(_))), "it is there");
        let none = folder.path().join("none/records.jsonl");
        let Some(Err(why)) = at(&none) else {
            panic!("there is no folder");
        };
        assert!(why.contains("none/records.jsonl can't be written"), "{why}");
    }
}
