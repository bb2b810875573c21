//! Running other programs: echoed, checked, with errors that name the command.
//!
//! Owns: where the repository and its target folder are, and how a child's failure is told. Refuses: shells.

use anyhow::{Context, Result, bail};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

/// The repository's root: of the checkout that `cargo xtask` was started in, even where several share a target folder.
pub(crate) fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let manifest =
            std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        Path::new(&manifest)
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default()
    });
    &ROOT
}

/// A cargo command in the repository's root, free of what the running `cargo xtask` put into the environment.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Left over from `cargo run`, these would make every build script that watches them run again.
    for name in [
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_PATH",
        "CARGO_PKG_NAME",
        "CARGO_PKG_VERSION",
    ] {
        command.env_remove(name);
    }
    command
}

/// The command as one would type it.
pub(crate) fn display(command: &Command) -> String {
    let mut words = vec![shorten(command.get_program())];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

/// A cargo from a toolchain's folder is just `cargo` to a reader.
fn shorten(program: &OsStr) -> String {
    let path = Path::new(program);
    match path.file_name() {
        Some(name) if name == "cargo" => "cargo".to_owned(),
        _ => path.display().to_string(),
    }
}

/// Runs to the end with inherited output; an error when it can't start or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", display(command));
    let status = command
        .status()
        .with_context(|| format!("can't start `{}`", display(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", display(command));
    }
    Ok(())
}

/// Runs to the end and returns its standard output, standard error being inherited.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("can't start `{}`", display(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", display(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed bytes that are not text", display(command)))
}

/// Standard output of a probe (`--version` and the like), `None` when it can't run or fails.
pub(crate) fn probe(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
