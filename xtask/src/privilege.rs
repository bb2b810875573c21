//! Root: whether we have it, and how to get it.
//!
//! Owns: the words to put before a command, and what to tell the operator. Refuses: running more as root than the agent
//! and the live tests.

use anyhow::{Result, bail};
use std::{
    io::IsTerminal,
    process::{Command, Stdio},
};

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// The words that make the command behind them run as root: none for root itself, else `sudo -E`. Asks for the password
/// now, where one is needed, so that nothing waits for it later.
pub(crate) fn words(why: &str) -> Result<Vec<String>> {
    if is_root() {
        return Ok(Vec::new());
    }
    let quiet = |arguments: &[&str]| {
        Command::new("sudo")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
    };
    if quiet(&["-V"]).is_err() {
        bail!("{why} needs root, and there is no sudo: run `cargo xtask` as root");
    }
    if !quiet(&["-n", "true"]).is_ok_and(|status| status.success()) {
        if !std::io::stdin().is_terminal() {
            bail!(
                "{why} needs root, and sudo asks for a password: run `sudo -v` first, or `cargo xtask` as root"
            );
        }
        eprintln!("{why} needs root to load BPF programs and to read other processes' sockets.");
        let status = Command::new("sudo").arg("-v").status()?;
        if !status.success() {
            bail!("{why} needs root, and sudo refused");
        }
    }
    Ok(vec!["sudo".to_owned(), "-E".to_owned(), "--".to_owned()])
}

/// Keeps sudo from asking again, which it would after some minutes; then nobody could end what runs as root. Call it
/// more often than that. `through` is what [`words`] gave.
pub(crate) fn keep(through: &[String]) {
    if !through.is_empty() {
        // Where sudo remembers nothing, or asks nothing, there is nothing to keep.
        let _ = Command::new("sudo")
            .args(["-n", "-v"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}
