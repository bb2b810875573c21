//! The store: whether it can be read and written, and has room.
//!
//! Owns: its facts and its check. Refuses: making, opening for writing or mending it (`infertap run` does).

use super::Check;
use super::Verdict::Degraded;
use super::judge::{check, works};
use crate::config::Config;
use crate::store::{Reader, StoreError};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Room that a store needs to begin with: its file, its log, some days of budgets and usage.
const LITTLE: u64 = 64 << 20;

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFacts {
    /// The file.
    pub path: PathBuf,
    /// Whether it is there, or why it can't be used.
    pub file: Result<bool, String>,
    /// What is there of its path and can't be written.
    pub read_only: Option<PathBuf>,
    /// Bytes that its file system has left for us.
    pub free: Option<u64>,
    /// Bytes that it has.
    pub size: u64,
    /// Bytes that it may grow to.
    pub most: u64,
}

impl StoreFacts {
    /// Looks; `None` where nothing is to be kept.
    pub(super) fn gather(config: &Config) -> Option<StoreFacts> {
        let path = config.store.file()?;
        let file = match Reader::open(path) {
            // `infertap run` makes it, or brings it up to date.
            Ok(_) | Err(StoreError::Older { .. }) => Ok(true),
            Err(StoreError::Absent { .. }) => Ok(false),
            Err(error) => Err(error.to_string()),
        };
        let there = path.ancestors().find(|part| part.exists());
        let folder = there.filter(|part| part.is_dir()).or_else(|| path.parent());
        let needed = there.into_iter().chain(folder);
        let mut refused = needed.filter(|part| !writable(part));
        Some(StoreFacts {
            path: path.to_owned(),
            file,
            read_only: refused.next().map(Path::to_owned),
            free: folder.and_then(free),
            size: path.metadata().map_or(0, |facts| facts.len()),
            most: config.records.max_bytes.get(),
        })
    }
}

fn name(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

fn writable(path: &Path) -> bool {
    // SAFETY: the name ends with a zero and lives as long as the call.
    name(path).is_some_and(|name| unsafe { libc::access(name.as_ptr(), libc::W_OK) } == 0)
}

fn free(path: &Path) -> Option<u64> {
    let name = name(path)?;
    let mut facts = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name ends with a zero, and the kernel fills the struct when it returns 0.
    let facts =
        unsafe { (libc::statvfs(name.as_ptr(), facts.as_mut_ptr()) == 0).then(|| facts.assume_init()) }?;
    Some(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// The check.
pub(super) fn judge(store: Option<&StoreFacts>) -> Check {
    const NAME: &str = "store";
    let Some(store) = store else {
        return works(
            NAME,
            "off (store.path is empty): no records are kept, and budgets begin anew at each start",
        );
    };
    let path = store.path.display();
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    if let Err(error) = &store.file {
        return check(NAME, Degraded, error.clone(), None);
    }
    if let Some(part) = &store.read_only {
        let why = format!(
            "{path} can't be written: {} is read-only for this user",
            part.display()
        );
        return check(
            NAME,
            Degraded,
            why,
            Some(
                "run as root, or name a file on a writable disk with store.path; until then nothing is kept",
            ),
        );
    }
    let Some(free) = store.free else {
        return works(
            NAME,
            format!("{path}; how much room its file system has is not known"),
        );
    };
    if free < LITTLE {
        return check(
            NAME,
            Degraded,
            format!("{path}: its file system has {} left", mib(free)),
            Some(
                "make room, or name a file on another disk with store.path: on a full disk records are lost",
            ),
        );
    }
    if store.size.saturating_add(free) < store.most {
        return check(
            NAME,
            Degraded,
            format!(
                "{path} has {} and may grow to {}; its file system has {} left",
                mib(store.size),
                mib(store.most),
                mib(free)
            ),
            Some("lower records.max_bytes, or name a file on a larger disk with store.path"),
        );
    }
    let state = if store.file == Ok(true) {
        format!("{path} has {}", mib(store.size))
    } else {
        format!("{path} is made at the first start")
    };
    works(NAME, format!("{state}; its file system has {} left", mib(free)))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{self, Works};
    use super::*;

    fn facts() -> StoreFacts {
        StoreFacts {
            path: "/var/lib/infertap/store.db".into(),
            file: Ok(true),
            read_only: None,
            free: Some(10 << 30),
            size: 5 << 20,
            most: 1 << 30,
        }
    }

    #[test]
    fn each_trouble_is_told_with_what_to_do() {
        let with = |change: fn(&mut StoreFacts)| {
            let mut facts = facts();
            change(&mut facts);
            facts
        };
        let cases: Vec<(StoreFacts, Verdict, &str)> = vec![
            (facts(), Works, "has 5 MiB; its file system has 10240 MiB left"),
            (with(|f| f.file = Ok(false)), Works, "is made at the first start"),
            (with(|f| f.free = None), Works, "not known"),
            (
                with(|f| f.file = Err("it is damaged".to_owned())),
                Degraded,
                "it is damaged",
            ),
            (
                with(|f| f.read_only = Some("/var".into())),
                Degraded,
                "/var is read-only",
            ),
            (with(|f| f.free = Some(1 << 20)), Degraded, "has 1 MiB left"),
            (
                with(|f| f.free = Some(500 << 20)),
                Degraded,
                "may grow to 1024 MiB",
            ),
            (
                with(|f| (f.free, f.size) = (Some(500 << 20), 600 << 20)),
                Works,
                "has 600 MiB",
            ),
        ];
        for (facts, verdict, words) in cases {
            let check = judge(Some(&facts));
            assert_eq!(check.verdict, verdict, "{facts:?}: {check:?}");
            assert!(check.why.contains(words), "{check:?}");
        }
        assert_eq!(judge(None).verdict, Works);
    }

    #[test]
    fn looking_makes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.store.path = folder.path().join("not/there/store.db");
        let facts = StoreFacts::gather(&config).expect("to be kept");
        assert_eq!((facts.file, facts.read_only), (Ok(false), None));
        assert!(facts.free.is_some_and(|free| free > 0));
        assert!(!folder.path().join("not").exists());
        config.store.path = folder.path().join("text");
        std::fs::write(&config.store.path, "no database, but a text of some length").expect("writes");
        assert!(StoreFacts::gather(&config).expect("there").file.is_err());
        config.store.path = PathBuf::new();
        assert_eq!(StoreFacts::gather(&config), None);
    }
}
