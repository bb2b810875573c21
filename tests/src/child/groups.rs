//! Process groups that must not outlive this process, however it ends.
//!
//! Owns: a watcher, one for each process that starts children: a shell that is told their groups, and kills those that are left
//! when the pipe from this process closes. That is at an exit with statics, which are never dropped, and also when a signal
//! ends this process, where nothing of its own runs any more. Refuses: groups of privileged children, which it may not kill.

use anyhow::{Context, Result};
use std::{
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{self, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// Reads `+ GROUP` and `- GROUP`, a line each. What asks this process to end does not end the watcher first.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=
while read -r sign group; do
  case $sign in
    +) groups="$groups $group ";;
    -) before=${groups%% $group *}; [ "$before" = "$groups" ] || groups="$before${groups#* $group }";;
  esac
done
for group in $groups; do kill -9 "-$group"; done
"#;

static WATCHER: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// From now on `group` ends with this process. An error when there is no shell to see to that.
pub(super) fn note(group: u32) -> Result<()> {
    if process::id() == 1 {
        // With the first process of a machine, every other one ends; and the machine of the kernel test has no shell.
        return Ok(());
    }
    let mut watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
    let pipe = match watcher.as_mut() {
        Some(pipe) => pipe,
        None => watcher.insert(start().context("can't start the shell that ends what a test leaves")?),
    };
    writeln!(pipe, "+ {group}").context("the shell that ends what a test leaves is gone")
}

/// `group` has ended, and its number is free for others.
pub(super) fn forget(group: u32) {
    let mut watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pipe) = watcher.as_mut() {
        // A watcher that is gone kills nobody.
        drop(writeln!(pipe, "- {group}"));
    }
}

fn start() -> io::Result<ChildStdin> {
    let mut shell = Command::new("/bin/sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    shell
        .stdin
        .take()
        .ok_or_else(|| io::Error::other("no pipe to it"))
}
