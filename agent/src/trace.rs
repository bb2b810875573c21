//! `infertap trace`: the last time of a running agent, into a file that trace viewers open.
//!
//! Owns: the file, which is there as a whole or not at all. Refuses: asking (`api`) and drawing (the core's `chrome_trace`).

use crate::api;
use crate::cli::TraceArgs;
use anyhow::Context as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Asks the agent at `address`, writes its answer, and tells `notes` what it was.
///
/// # Errors
/// There is no agent, it refuses, or the file can't be written; with what to do.
pub fn trace_command(
    address: SocketAddr,
    args: &TraceArgs,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> anyhow::Result<()> {
    let answer = api::bytes(address, &path(args))?;
    // What is no trace replaces no file.
    let trace: Trace = api::read(address, &answer)?;
    if args.output == Path::new("-") {
        out.write_all(&answer)?;
        return Ok(());
    }
    let output = args.output.display();
    write(&args.output, &answer).with_context(|| format!("cannot write {output}"))?;
    let about = &trace.other_data;
    let events = trace.trace_events.len();
    let mut told = format!("{output}: {} requests, {events} events", about.requests);
    let late = [about.requests_known_from_us, about.moments_known_from_us];
    if late.into_iter().flatten().any(|at| at > about.from_us) {
        told +=
            "; the agent no longer has the beginning: raise server.recent_requests and server.history_memory";
    }
    writeln!(
        notes,
        "{told}\nopen it in https://ui.perfetto.dev or chrome://tracing"
    )?;
    Ok(())
}

/// What is looked at of the answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    trace_events: Vec<IgnoredAny>,
    other_data: About,
}

#[derive(Debug, Deserialize)]
struct About {
    requests: u64,
    from_us: u64,
    requests_known_from_us: Option<u64>,
    moments_known_from_us: Option<u64>,
}

fn path(args: &TraceArgs) -> String {
    let mut path = format!("/api/v1/trace?since={}ms", args.since.duration().as_millis());
    if let Some(engine) = &args.engine {
        path += "&engine=";
        for byte in engine.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}

/// Writes beside the file, then puts it in its place. What is there and no file, such as a pipe, is written to.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // A link stays one: what it leads to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
        return OpenOptions::new().write(true).open(&path)?.write_all(bytes);
    }
    let beside = beside(&path);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // The error that is told is the one that came first.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn args(flags: &[&str]) -> TraceArgs {
        let all = ["infertap", "trace"].iter().chain(flags);
        match Cli::try_parse_from(all).expect("valid").command {
            Command::Trace(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_are_a_question() {
        assert_eq!(path(&args(&["-o", "-"])), "/api/v1/trace?since=60000ms");
        assert_eq!(
            path(&args(&["-o", "x", "--since", "500ms", "--engine", "a b&c"])),
            "/api/v1/trace?since=500ms&engine=a%20b%26c"
        );
        assert!(
            Cli::try_parse_from(["infertap", "trace"]).is_err(),
            "a file is named"
        );
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_pipe_is_written_to() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("out.json");
        for text in ["first", "second"] {
            write(&file, text.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&file).expect("a file"), text);
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        write(&link, b"third").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "third");
        write(Path::new("/dev/null"), b"gone").expect("written");
        assert!(!fs::metadata("/dev/null").expect("a device").is_file());
        assert!(write(&dir.path().join("none/out.json"), b"").is_err());
        let names = fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(names, 2, "nothing is left beside");
    }
}
