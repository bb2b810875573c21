//! The stand-in libraries as files.
//!
//! Owns: finding what cargo built, copying it under the real names, taking symbols away. Refuses: building: cargo makes the
//! shared objects because this package depends on theirs.

use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// File name of NVML's library.
pub const NVML: &str = "libnvidia-ml.so.1";
/// File name of the CUDA driver's library.
pub const CUDA: &str = "libcuda.so.1";
/// File name of the CUDA runtime's library.
pub const CUDART: &str = "libcudart.so.12";

/// Names of the shared objects as cargo makes them.
const BUILT: [(&str, &str); 3] = [
    ("libinfertap_stand_in_nvml.so", NVML),
    ("libinfertap_stand_in_cuda.so", CUDA),
    ("libinfertap_stand_in_cudart.so", CUDART),
];

/// A folder with stand-in libraries under their real names. Each test makes its own: uprobes bind to files, and so do not
/// meet those of another test.
#[derive(Debug)]
pub struct Drivers {
    folder: PathBuf,
}

impl Drivers {
    /// Copies the libraries into `folder`, which is made if need be.
    pub fn install(folder: &Path) -> Result<Drivers> {
        Drivers::install_without(folder, &[])
    }

    /// As [`Drivers::install`], with the libraries that were built with another executable: those of its profile.
    pub fn install_built_with(executable: &Path, folder: &Path) -> Result<Drivers> {
        Drivers::copy(executable, folder, &[])
    }

    /// As [`Drivers::install`], with libraries that do not have these functions, as old ones do not.
    pub fn install_without(folder: &Path, functions: &[&str]) -> Result<Drivers> {
        let executable = std::env::current_exe().context("can't tell where this executable is")?;
        Drivers::copy(&executable, folder, functions)
    }

    fn copy(executable: &Path, folder: &Path, functions: &[&str]) -> Result<Drivers> {
        fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
        let mut missing: Vec<&str> = functions.to_vec();
        for (built, name) in BUILT {
            let built = find(executable, built)?;
            let mut bytes = fs::read(&built).with_context(|| format!("can't read {}", built.display()))?;
            missing.retain(|function| !hide(&mut bytes, function));
            let path = folder.join(name);
            fs::write(&path, bytes).with_context(|| format!("can't write {}", path.display()))?;
        }
        ensure!(missing.is_empty(), "no stand-in library exports {missing:?}");
        Ok(Drivers {
            folder: folder.to_owned(),
        })
    }

    /// The folder, for `LD_LIBRARY_PATH`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A library's path.
    pub fn library(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The shared object beside the executable, or in the `deps` beside it: cargo's executables of tests are in `deps`, others
/// one above.
fn find(executable: &Path, name: &str) -> Result<PathBuf> {
    let folders = executable.ancestors().skip(1).take(2);
    let candidates: Vec<PathBuf> = folders
        .flat_map(|folder| [folder.join(name), folder.join("deps").join(name)])
        .collect();
    let found = candidates.iter().find(|path| path.is_file());
    found.cloned().with_context(|| {
        let list: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        format!("cargo has built no {name}; looked for {}", list.join(", "))
    })
}

/// Renames a symbol where it stands, so that it is not found by its name; whether it was there.
fn hide(library: &mut [u8], function: &str) -> bool {
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let mut found = false;
    let mut from = 0;
    while let Some(at) = library[from..]
        .windows(name.len())
        .position(|window| window == name)
    {
        library[from + at + 1] = b'-';
        from += at + 1;
        found = true;
    }
    found
}
