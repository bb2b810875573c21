//! `cargo xtask ebpf`: builds the BPF crate into the object that the agent embeds, and its build stamp.
//!
//! Owns: finding a toolchain (nightly with `rust-src`, or Debian's `rustc-web`), the reproducible build, the check
//! against what is committed. Refuses: installing toolchains; it says what to install.

use crate::sh;
use anyhow::{Context, Result, bail};
use infertap_tests::bpf_stamp::{self, Stamp};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const TARGET: &str = "bpfel-unknown-none";

const INSTALL: &str = "no toolchain for BPF programs was found. Install one of:
  rustup toolchain install nightly --component rust-src && cargo install bpf-linker
  (Debian 12)  apt-get install rustc-web rust-web-src llvm-22-dev &&
               LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker@0.13.0 --no-default-features --features llvm-22
Users and other developers need neither: the built object is committed.";

/// Build the BPF programs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Build, and fail when the committed object differs; nothing is written outside target folders
    #[arg(long)]
    check: bool,
}

/// A compiler that can build for BPF here.
struct Toolchain {
    /// First line of its `rustc --version`.
    rustc: String,
    kind: Kind,
}

enum Kind {
    /// Of rustup; its cargo is used too.
    Nightly,
    /// Debian's compiler with the unstable features opened, under whichever cargo runs us.
    Debian,
}

impl Toolchain {
    /// The toolchains that are complete here, preferred first: the one that made the committed object, if any.
    fn find(committed: Option<&Stamp>) -> Result<Toolchain> {
        let mut found: Vec<Toolchain> = [Self::nightly(), Self::debian()].into_iter().flatten().collect();
        if let Some(stamp) = committed
            && let Some(at) = found.iter().position(|t| t.rustc == stamp.rustc)
        {
            return Ok(found.swap_remove(at));
        }
        found.into_iter().next().context(INSTALL)
    }

    fn nightly() -> Option<Toolchain> {
        let rustc = |arg: &[&str]| {
            let mut command = Command::new("rustup");
            command
                .args(["run", "nightly", "rustc"])
                .args(arg)
                .stderr(Stdio::null());
            sh::probe(&mut command)
        };
        let sysroot = rustc(&["--print", "sysroot"])?;
        Self::has_sources(&sysroot).then_some(())?;
        Some(Toolchain {
            rustc: rustc(&["--version"])?,
            kind: Kind::Nightly,
        })
    }

    fn debian() -> Option<Toolchain> {
        let rustc = |arg: &[&str]| sh::probe(Command::new(DEBIAN_RUSTC).args(arg).stderr(Stdio::null()));
        let sysroot = rustc(&["--print", "sysroot"])?;
        Self::has_sources(&sysroot).then_some(())?;
        Some(Toolchain {
            rustc: rustc(&["--version"])?,
            kind: Kind::Debian,
        })
    }

    fn has_sources(sysroot: &str) -> bool {
        Path::new(sysroot)
            .join("lib/rustlib/src/rust/library/core/Cargo.toml")
            .is_file()
    }

    fn cargo(&self) -> Command {
        let mut command = match self.kind {
            Kind::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo"]);
                // Set by the rustup proxy that runs us; it would win over `run nightly`'s choice in nested calls.
                command
                    .env_remove("RUSTUP_TOOLCHAIN")
                    .env_remove("CARGO")
                    .env_remove("RUSTC");
                command
            }
            Kind::Debian => {
                let mut command = sh::cargo();
                command.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
                command
            }
        };
        for name in [
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "CARGO_TARGET_DIR",
        ] {
            command.env_remove(name);
        }
        command
    }
}

/// Entry of the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let linker = sh::probe(Command::new("bpf-linker").arg("--version").stderr(Stdio::null()))
        .with_context(|| format!("bpf-linker is not on the PATH; {INSTALL}"))?;
    let object_path = sh::root().join(bpf_stamp::OBJECT);
    let stamp_path = sh::root().join(bpf_stamp::STAMP);
    let committed = Stamp::read(&stamp_path).ok();
    let toolchain = Toolchain::find(committed.as_ref())?;
    eprintln!("building with {}, {linker}", toolchain.rustc);
    let built = fs::read(build(&toolchain)?)?;
    let stamp = Stamp::new(sh::root(), toolchain.rustc, linker, &built)?;
    if args.check {
        return check(&built, &stamp, &object_path, committed);
    }
    fs::create_dir_all(object_path.parent().unwrap_or(sh::root()))?;
    let unchanged = fs::read(&object_path).is_ok_and(|old| old == built);
    if !unchanged {
        fs::write(&object_path, &built).with_context(|| format!("can't write {}", object_path.display()))?;
    }
    stamp.write(&stamp_path)?;
    let word = if unchanged { "unchanged" } else { "written" };
    println!("{} {word}: {} bytes", bpf_stamp::OBJECT, built.len());
    Ok(())
}

fn check(built: &[u8], stamp: &Stamp, object_path: &Path, committed: Option<Stamp>) -> Result<()> {
    let committed = committed.with_context(|| {
        format!(
            "no readable {}; run `cargo xtask ebpf` and commit the result",
            bpf_stamp::STAMP
        )
    })?;
    let object = fs::read(object_path).with_context(|| {
        format!(
            "no {}; run `cargo xtask ebpf` and commit the result",
            bpf_stamp::OBJECT
        )
    })?;
    if committed.sources != stamp.sources {
        bail!(
            "the sources under ebpf/ changed since {} was built; run `cargo xtask ebpf` and commit both files",
            bpf_stamp::OBJECT
        );
    }
    if object == built {
        println!(
            "{} is what the sources build to ({} bytes)",
            bpf_stamp::OBJECT,
            built.len()
        );
        return Ok(());
    }
    if (&committed.rustc, &committed.bpf_linker) != (&stamp.rustc, &stamp.bpf_linker) {
        bail!(
            "{} was built by {}, {} and can't be compared with what {}, {} builds; install the former, or run \
             `cargo xtask ebpf` and commit what the latter builds",
            bpf_stamp::OBJECT,
            committed.rustc,
            committed.bpf_linker,
            stamp.rustc,
            stamp.bpf_linker
        );
    }
    let first = object
        .iter()
        .zip(built)
        .position(|(a, b)| a != b)
        .unwrap_or(object.len().min(built.len()));
    bail!(
        "{} is not what its sources build to: {} bytes committed, {} built, first difference at byte {first}; run \
         `cargo xtask ebpf` and commit the result",
        bpf_stamp::OBJECT,
        object.len(),
        built.len()
    )
}

/// Builds, and returns where cargo put the object.
fn build(toolchain: &Toolchain) -> Result<PathBuf> {
    let folder = sh::root().join("ebpf");
    let mut command = toolchain.cargo();
    command
        .current_dir(&folder)
        .args([
            "build",
            "--release",
            "--locked",
            "-Z",
            "build-std=core",
            "--target",
            TARGET,
        ])
        .args(["--message-format", "json-render-diagnostics"])
        // Joined with what the crate's own .cargo/config.toml sets for the target.
        .args([
            "--config",
            &format!("target.{TARGET}.rustflags={:?}", rustflags(&folder)),
        ]);
    let messages = sh::output(&mut command)?;
    let mut objects: Vec<PathBuf> = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["kind"][0] == "bin")
        .filter_map(|message| message["filenames"][0].as_str().map(PathBuf::from))
        .collect();
    match (objects.pop(), objects.is_empty()) {
        (Some(object), true) => Ok(object),
        (Some(_), false) => bail!("the BPF crate builds more than one binary; the agent embeds one object"),
        (None, _) => bail!("the BPF crate built no binary"),
    }
}

/// No path of this machine may reach the object: the bytes must be the same from any folder.
fn rustflags(folder: &Path) -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    vec![
        format!("--remap-path-prefix={}=ebpf", folder.display()),
        format!("--remap-path-prefix={}=cargo", cargo_home.display()),
    ]
}
