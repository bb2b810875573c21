//! The agent on another kernel: Debian's 6.1 cloud kernel in QEMU, without KVM.
//!
//! Owns: fetching the kernel package, the initramfs, the virtual machine's console. Refuses: installing anything: the
//! package is unpacked under the target folder. `INFERTAP_KERNEL` names another kernel image to use instead.

mod initramfs;

use anyhow::{Context, Result, bail, ensure};
use initramfs::Initramfs;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The last console line of a machine in which everything went well.
pub const SUCCESS: &str = "KERNEL TEST: ok";
/// How its lines of failure begin.
pub const FAILURE: &str = "KERNEL TEST: FAILED";

const META_PACKAGE: &str = "linux-image-cloud-amd64";
const PREFIX: &str = "linux-image-6.1.0-";

/// What goes into the machine.
#[derive(Debug, Clone)]
pub struct Programs {
    /// Runs as process 1.
    pub init: PathBuf,
    /// `/bin/infertap`.
    pub agent: PathBuf,
    /// `/bin/scripted-server`.
    pub server: PathBuf,
}

/// Where the kernel and its machine's files are, in the folder that cargo builds into.
pub fn folder(target: &Path) -> PathBuf {
    target.join("kernel")
}

/// The kernel image, fetched and unpacked into `folder` where it is not there yet.
pub fn image(folder: &Path) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("INFERTAP_KERNEL") {
        return Ok(path.into());
    }
    fs::create_dir_all(folder)?;
    if let Some(image) = find(&folder.join("root/boot"), |name| name.starts_with("vmlinuz-6.1.")) {
        return Ok(image);
    }
    let depends = run(Command::new("apt-cache").args(["depends", META_PACKAGE])).context(
        "the kernel test fetches a Debian kernel with apt; elsewhere set INFERTAP_KERNEL to a kernel image",
    )?;
    let package = depends.split_whitespace().find(|word| word.starts_with(PREFIX));
    let package =
        package.with_context(|| format!("apt knows no {PREFIX}* (run `apt-get update`): {depends}"))?;
    eprintln!("kernel: fetching {package}");
    run(Command::new("apt-get")
        .args(["download", "--quiet", package])
        .current_dir(folder))?;
    let is_ours = |name: &str| name.starts_with(package);
    let archive = find(folder, is_ours).with_context(|| format!("apt-get brought no {package}"))?;
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&archive)
        .arg(folder.join("root")))?;
    fs::remove_file(archive)?;
    find(&folder.join("root/boot"), |name| name.starts_with("vmlinuz-"))
        .with_context(|| format!("{package} holds no kernel image"))
}

/// Boots `kernel` with `programs` and returns the console's text; an error when the machine does not power itself off
/// within `limit`.
pub fn boot(kernel: &Path, programs: &Programs, folder: &Path, limit: Duration) -> Result<String> {
    let mut image = Initramfs::default();
    image.program("init", &programs.init)?;
    image.program("bin/infertap", &programs.agent)?;
    image.program("bin/scripted-server", &programs.server)?;
    for empty in ["proc", "sys", "dev", "tmp", "run"] {
        image.folder(empty);
    }
    fs::create_dir_all(folder)?;
    let initrd = folder.join("initramfs.cpio");
    fs::write(&initrd, image.finish()).with_context(|| format!("can't write {}", initrd.display()))?;
    let console = folder.join("console.log");
    let mut command = Command::new("qemu-system-x86_64");
    command.args([
        "-accel",
        "tcg",
        "-cpu",
        "max",
        "-m",
        "1024",
        "-smp",
        "2",
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(&initrd);
    command.args([
        "-append",
        "console=ttyS0 panic=-1 quiet loglevel=4 random.trust_cpu=on",
    ]);
    let mut machine = crate::child::Child::spawn("qemu-system-x86_64", command, &folder.join("qemu.log"))
        .context("the kernel test needs QEMU (Debian: apt-get install qemu-system-x86)")?;
    let mut ended = None;
    let text = |console: &Path| String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned();
    let start = std::time::Instant::now();
    while ended.is_none() {
        ensure!(
            start.elapsed() < limit,
            "the machine still runs after {limit:?}; its console:\n{}",
            text(&console)
        );
        std::thread::sleep(Duration::from_millis(100));
        ended = machine.ended();
    }
    let text = text(&console);
    ensure!(
        ended.is_some_and(|status| status.success()),
        "QEMU failed:\n{}\n{text}",
        machine.log_tail()
    );
    Ok(text)
}

fn find(folder: &Path, fits: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries
        .flatten()
        .find(|entry| entry.file_name().to_str().is_some_and(&fits))
        .map(|entry| entry.path())
}

fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("can't start {name}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
