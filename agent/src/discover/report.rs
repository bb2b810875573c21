//! `infertap engines`: what was found, what would be probed, what not and why.
//!
//! Owns: the closer look at each engine, and its printing. Refuses: attaching anything.

use super::found::{FoundEngine, Part, Scan, ScanProblem};
use super::host::Host;
use super::scan::{Scanner, ScannerConfig};
use super::sockets::stream_sockets;
use crate::config::{Config, SocketProbe};
use infertap_abi::{Role, Transport};
use infertap_core::{EngineInfo, EngineKind};
use serde::Serialize;
use std::io::{self, Write};

/// Everything that `infertap engines` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The engines, by id.
    pub engines: Vec<EngineReport>,
    /// What passes requests on to engines, by id.
    pub gateways: Vec<EngineReport>,
    /// What was asked for and not found, or could not be looked at.
    pub problems: Vec<ScanProblem>,
    /// Processes looked at.
    pub processes_seen: usize,
}

/// One engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineReport {
    /// What the agent knows of it.
    #[serde(flatten)]
    pub info: EngineInfo,
    /// The rule or flag that found it.
    pub found_by: String,
    /// Its processes.
    pub processes: Vec<ProcessReport>,
    /// Libraries that encrypt, by path as the process sees it.
    pub tls_libraries: Vec<String>,
    /// How its sockets would be read.
    pub socket_probe: SocketProbe,
    /// What would not be seen, and why.
    pub not_seen: Vec<String>,
}

/// One process of an engine, and the stream sockets that would be watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessReport {
    /// Process id.
    pub pid: u32,
    /// The kernel's 15 bytes of name.
    pub comm: String,
    /// What it does in the engine.
    pub part: Part,
    /// Why it belongs to the engine.
    pub why: String,
    /// TCP ports that it listens on.
    pub listens_on: Vec<u16>,
    /// Other TCP sockets.
    pub tcp_connections: usize,
    /// Unix stream sockets, listening or not.
    pub unix_streams: usize,
}

/// Looks closer at what a scan found.
pub(super) fn report(host: &Host, scan: &Scan, socket_probe: SocketProbe) -> Report {
    let own_pid_namespace = host.namespace(std::process::id(), "pid").ok();
    let reports = scan
        .engines
        .iter()
        .map(|engine| engine_report(host, engine, socket_probe, own_pid_namespace));
    let (gateways, engines) = reports.partition(|report| report.info.kind == EngineKind::Gateway);
    Report {
        engines,
        gateways,
        problems: scan.problems.clone(),
        processes_seen: scan.processes,
    }
}

fn engine_report(
    host: &Host,
    engine: &FoundEngine,
    socket_probe: SocketProbe,
    own_pid_namespace: Option<u64>,
) -> EngineReport {
    let mut not_seen = engine.notes.clone();
    let mut tls_libraries = Vec::new();
    let mut processes = Vec::new();
    for process in &engine.processes {
        let pid = process.pid;
        let sockets = stream_sockets(host.root(), pid).unwrap_or_else(|error| {
            let hint = if error.kind() == io::ErrorKind::PermissionDenied {
                "; run as root"
            } else {
                ""
            };
            not_seen.push(format!("sockets of pid {pid} that are open now: {error}{hint}"));
            Vec::new()
        });
        let tcp = |listening: bool| {
            sockets
                .iter()
                .filter(move |s| s.transport == Transport::Tcp && (s.role == Role::Listen) == listening)
        };
        let mut listens_on: Vec<u16> = tcp(true).filter_map(|socket| socket.port).collect();
        listens_on.sort_unstable();
        listens_on.dedup();
        processes.push(ProcessReport {
            pid,
            comm: process.comm.clone(),
            part: process.part,
            why: process.why.clone(),
            listens_on,
            tcp_connections: tcp(false).count(),
            unix_streams: sockets
                .iter()
                .filter(|socket| socket.transport == Transport::Unix)
                .count(),
        });
        if process.part != Part::Server {
            continue;
        }
        let mapped = host.mapped(pid).unwrap_or_default();
        for library in mapped.libraries {
            if is_tls(&library) && !tls_libraries.contains(&library) {
                tls_libraries.push(library);
            }
        }
        if host
            .fds(pid)
            .unwrap_or_default()
            .iter()
            .any(|(_, link)| link == "anon_inode:[io_uring]")
        {
            not_seen.push(format!(
                "whatever pid {pid} may read or write through its io_uring: no system call is made for it (uvloop uses one for \
                 polling only, which loses nothing)"
            ));
        }
        let namespace = host.namespace(pid, "pid").ok();
        if own_pid_namespace.is_some()
            && namespace.is_some()
            && namespace != own_pid_namespace
            && engine.info.container.is_none()
        {
            not_seen.push(format!(
                "the container of pid {pid}: it has its own PID namespace, and its control group names none"
            ));
        }
    }
    EngineReport {
        info: (*engine.info).clone(),
        found_by: engine
            .processes
            .iter()
            .find(|process| process.pid == engine.root)
            .map(|process| process.why.clone())
            .unwrap_or_default(),
        processes,
        tls_libraries,
        socket_probe,
        not_seen,
    }
}

/// OpenSSL, BoringSSL and `LibreSSL` (as shared objects), GnuTLS, NSS.
fn is_tls(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    [
        "libssl.so",
        "libssl-",
        "libssl3.so",
        "libgnutls.so",
        "libboringssl",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// `infertap engines`.
///
/// # Errors
/// The output can't be written.
pub fn engines_command(config: &Config, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut scanner = Scanner::new(ScannerConfig::new(config.discover.clone()));
    let scan = scanner.scan();
    let report = report(scanner.host(), &scan, config.capture.socket_probe);
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&report, out)?;
    }
    Ok(())
}

/// Prints for people.
///
/// # Errors
/// The output can't be written.
pub(super) fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.engines.is_empty() {
        writeln!(out, "No engine found among {} processes.", report.processes_seen)?;
        writeln!(
            out,
            "Name a server that is not recognised with --port, --pid or --comm, or write a [[discover.rule]]."
        )?;
    }
    for engine in report.engines.iter().chain(&report.gateways) {
        let info = &engine.info;
        write!(out, "{}: {}", info.id, info.kind.as_str())?;
        if let Some(version) = &info.version {
            write!(out, " {version}")?;
        }
        writeln!(out, ", pid {}", info.pid)?;
        let mut line = |name: &str, text: &str| writeln!(out, "  {name:<11} {text}");
        line("found by", &engine.found_by)?;
        if info.kind != EngineKind::Gateway {
            let unknown = "not told on the command line; learned from traffic";
            line("model", info.model.as_deref().unwrap_or(unknown))?;
        }
        let ports: Vec<String> = info.ports.iter().map(ToString::to_string).collect();
        line(
            "listens on",
            if ports.is_empty() {
                "no TCP port".to_owned()
            } else {
                ports.join(", ")
            }
            .as_str(),
        )?;
        if let Some(container) = &info.container {
            line("container", container)?;
        }
        if let Some(pod) = &info.pod_uid {
            line("pod", pod)?;
        }
        let how = match engine.socket_probe {
            SocketProbe::Tracepoint => "at system call tracepoints",
            SocketProbe::Uprobe => "at libc's socket functions",
        };
        line(
            "would probe",
            &format!("reads and writes on the stream sockets of these processes, {how}:"),
        )?;
        for process in &engine.processes {
            let part = match process.part {
                Part::Server => "server",
                Part::Worker => "worker",
                Part::Helper => "helper",
            };
            let listens = if process.listens_on.is_empty() {
                String::new()
            } else {
                let ports: Vec<String> = process.listens_on.iter().map(ToString::to_string).collect();
                format!("listens on {}, ", ports.join(" "))
            };
            writeln!(
                out,
                "              {:>7} {:<15} {part} ({}): {listens}{} TCP, {} Unix",
                process.pid, process.comm, process.why, process.tcp_connections, process.unix_streams
            )?;
        }
        let mut heading = "not seen";
        for reason in &engine.not_seen {
            writeln!(out, "  {heading:<11} {reason}")?;
            heading = "";
        }
        let mut heading = "tls";
        for library in &engine.tls_libraries {
            writeln!(out, "  {heading:<11} {library}")?;
            heading = "";
        }
        if !engine.tls_libraries.is_empty() {
            writeln!(
                out,
                "  {:<11} (loaded, not probed: encrypted connections are counted, not understood)",
                ""
            )?;
        }
    }
    for problem in &report.problems {
        writeln!(out, "note: {problem}")?;
    }
    Ok(())
}
