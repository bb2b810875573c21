//! Where lines are appended: standard output, or a file that is rotated by size or by others.
//!
//! Owns: opening, rotating, noticing that another program moved the file away, and never a torn line before a good one on the same
//! line. Refuses: what stands in a line, and losing any: what could not be written is told.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Rights of a file that is made: its owner writes, its group reads. Records tell who asked what.
const MODE: u32 = 0o640;

/// Something that lines are appended to.
#[derive(Debug)]
pub(super) struct Appender {
    place: Place,
    /// The last write ended within a line, and that could not be undone.
    torn: bool,
}

#[derive(Debug)]
enum Place {
    Stdout,
    File(Rotated),
}

/// A file that is rotated.
#[derive(Debug)]
struct Rotated {
    path: PathBuf,
    /// Size that it may have; 0: any.
    max_bytes: u64,
    /// Files of before that are kept.
    keep: u32,
    open: Option<File>,
    /// Held while it is written: after the configuration has changed, who wrote before may not have ended.
    turn: Arc<Mutex<()>>,
}

/// How an attempt to append lines came out.
#[derive(Debug)]
pub(super) struct Written {
    /// Lines that are there, whole.
    pub(super) lines: usize,
    /// Why these were not all.
    pub(super) error: Option<io::Error>,
}

impl Appender {
    pub(super) fn stdout() -> Appender {
        Appender {
            place: Place::Stdout,
            torn: false,
        }
    }

    /// `max_bytes` 0: others rotate it. Opened when the first lines come.
    pub(super) fn file(path: &Path, max_bytes: u64, keep: u32) -> Appender {
        Appender {
            place: Place::File(Rotated {
                path: path.to_owned(),
                max_bytes,
                keep,
                open: None,
                turn: turn(path),
            }),
            torn: false,
        }
    }

    /// Appends lines, each with its end.
    pub(super) fn append(&mut self, lines: &[String]) -> Written {
        match &mut self.place {
            Place::Stdout => {
                let mut out = io::stdout().lock();
                let written = append(&mut out, lines, &mut self.torn, |_, _| false);
                let _ = out.flush();
                written
            }
            Place::File(file) => {
                let turn = Arc::clone(&file.turn);
                let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                let bytes = lines.iter().map(|line| line.len() as u64).sum();
                match file.ready(bytes, &mut self.torn) {
                    Ok(out) => {
                        let before = out.metadata().map_or(0, |is| is.len());
                        append(out, lines, &mut self.torn, |out, whole| {
                            out.set_len(before + whole).is_ok()
                        })
                    }
                    Err(error) => Written {
                        lines: 0,
                        error: Some(error),
                    },
                }
            }
        }
    }
}

/// What those who write to this path take turns by.
fn turn(path: &Path) -> Arc<Mutex<()>> {
    static TURNS: Mutex<BTreeMap<PathBuf, Weak<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    turns.retain(|_, turn| turn.strong_count() > 0);
    if let Some(turn) = turns.get(path).and_then(Weak::upgrade) {
        return turn;
    }
    let turn = Arc::default();
    turns.insert(path.to_owned(), Arc::downgrade(&turn));
    turn
}

impl Rotated {
    /// The file to append so many bytes to.
    fn ready(&mut self, bytes: u64, torn: &mut bool) -> io::Result<&mut File> {
        if let Some(open) = &self.open {
            let (ours, there) = (open.metadata()?, std::fs::metadata(&self.path));
            // Moved away or removed: what comes now belongs to a new one.
            if !there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                self.open = None;
            }
        }
        if self.open.is_none() {
            self.open = Some(self.begin(torn)?);
        }
        let is = self.open.as_ref().map(File::metadata).transpose()?;
        let full = |is: &std::fs::Metadata| is.is_file() && is.len() > 0 && is.len() + bytes > self.max_bytes;
        if self.max_bytes > 0 && is.as_ref().is_some_and(full) {
            self.open = None;
            self.rotate()?;
            self.open = Some(self.begin(torn)?);
        }
        self.open
            .as_mut()
            .ok_or_else(|| io::Error::other("the file is not open"))
    }

    /// Opens it. A line that was left open at its end, by a power cut or a kill, is closed before the next.
    fn begin(&self, torn: &mut bool) -> io::Result<File> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(MODE)
            .open(&self.path)?;
        let is = file.metadata()?;
        *torn = false;
        if is.is_file() && is.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            *torn = last != *b"\n";
        }
        Ok(file)
    }

    /// `path` becomes `path.1`, that `path.2`, and the oldest goes.
    fn rotate(&self) -> io::Result<()> {
        if self.keep == 0 {
            return std::fs::remove_file(&self.path);
        }
        let older = |n: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{n}"));
            PathBuf::from(name)
        };
        for n in (1..self.keep).rev() {
            match std::fs::rename(older(n), older(n + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, older(1))
    }
}

/// Writes lines to `out`. `undo` takes back what is there beyond so many bytes of this attempt, and tells whether it could.
fn append<W: Write>(
    out: &mut W,
    lines: &[String],
    torn: &mut bool,
    undo: impl FnOnce(&mut W, u64) -> bool,
) -> Written {
    let mut bytes = Vec::with_capacity(lines.iter().map(String::len).sum::<usize>() + 1);
    let start = usize::from(*torn);
    bytes.extend(torn.then_some(b'\n'));
    bytes.extend(lines.iter().flat_map(|line| line.bytes()));
    let (mut done, mut error) = (0, None);
    while done < bytes.len() && error.is_none() {
        match out.write(&bytes[done..]) {
            Ok(0) => error = Some(io::ErrorKind::WriteZero.into()),
            Ok(n) => done = (done + n).min(bytes.len()),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => error = Some(why),
        }
    }
    if done > 0 {
        *torn = false;
    }
    let mut whole = start.min(done);
    let mut count = 0;
    for line in lines {
        if whole + line.len() > done {
            break;
        }
        whole += line.len();
        count += 1;
    }
    if whole < done {
        *torn = !undo(out, whole as u64);
        // All but its end, which comes before the next line.
        count += usize::from(
            *torn
                && lines
                    .get(count)
                    .is_some_and(|line| whole + line.len() == done + 1),
        );
    }
    Written { lines: count, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn lines(of: &[&str]) -> Vec<String> {
        of.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Takes so many bytes, three at a time, and then has no room.
    struct Full(Vec<u8>, usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(3).min(self.1 - self.0.len());
            self.0.extend_from_slice(&bytes[..n]);
            if n == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_leaves_whole_lines_wherever_it_strikes() {
        let all = lines(&["aaaa", "bb", "ccccc"]);
        let text = all.concat();
        for undoes in [true, false] {
            for room in 0..=text.len() {
                let (mut out, mut torn) = (Full(Vec::new(), room), false);
                let written = append(&mut out, &all, &mut torn, |out, whole| {
                    if undoes {
                        out.0.truncate(whole as usize);
                    }
                    undoes
                });
                assert_eq!(written.error.is_some(), room < text.len(), "{room}");
                // There is room again, for what was not written.
                out.1 = usize::MAX;
                let rest = &all[written.lines..];
                let again = append(&mut out, rest, &mut torn, |_, _| false);
                assert_eq!((again.lines, again.error.is_none()), (rest.len(), true));
                let there = String::from_utf8(out.0).expect("UTF-8");
                let whole: Vec<&str> = there
                    .lines()
                    .filter(|line| text.contains(&format!("{line}\n")))
                    .collect();
                if undoes {
                    assert_eq!(there, text, "{room}");
                }
                let good: Vec<&str> = text.lines().collect();
                let found: Vec<&str> = whole.into_iter().filter(|line| good.contains(line)).collect();
                assert_eq!(found, good, "{room}: {there:?}");
            }
        }
    }

    #[test]
    fn a_file_is_made_for_its_group_continued_and_rotated() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records.jsonl");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).ok();
        let mut out = Appender::file(&path, 10, 2);
        for line in [
            "1111",
            "2222",
            "3333",
            "a long one of its own",
            "4444",
            "5555",
            "6666",
        ] {
            assert!(out.append(&lines(&[line])).error.is_none());
        }
        assert_eq!(read("records.jsonl").as_deref(), Some("6666\n"));
        assert_eq!(read("records.jsonl.1").as_deref(), Some("4444\n5555\n"));
        assert_eq!(
            read("records.jsonl.2").as_deref(),
            Some("a long one of its own\n")
        );
        assert_eq!(read("records.jsonl.3"), None);
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
        assert_eq!(mode & 0o600, 0o600);

        // Another run goes on where it ended, and keeps off the line that a kill left open.
        std::fs::write(&path, "6666\n{\"torn").expect("writes");
        let mut out = Appender::file(&path, 0, 2);
        assert_eq!(out.append(&lines(&["7", "8"])).lines, 2);
        assert_eq!(read("records.jsonl").as_deref(), Some("6666\n{\"torn\n7\n8\n"));
    }

    #[test]
    fn a_file_that_was_moved_away_emptied_or_removed_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records.jsonl");
        let mut out = Appender::file(&path, 0, 2);
        let mut put = |line: &str| assert_eq!(out.append(&lines(&[line])).lines, 1);
        let read = |path: &Path| std::fs::read_to_string(path).expect("there");
        put("1");
        let moved = folder.path().join("moved");
        std::fs::rename(&path, &moved).expect("moves");
        put("2");
        assert_eq!((&*read(&moved), &*read(&path)), ("1\n", "2\n"));
        std::fs::write(&path, "").expect("empties");
        put("3");
        assert_eq!(read(&path), "3\n");
        std::fs::remove_file(&path).expect("removes");
        put("4");
        assert_eq!(read(&path), "4\n");
    }

    #[test]
    fn two_who_write_to_one_pipe_tear_no_line_of_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        // Longer than what a pipe takes at once.
        let write = |letter: &str, path: PathBuf| {
            let line = format!("{}\n", letter.repeat(200_000));
            std::thread::spawn(move || {
                let mut out = Appender::file(&path, 0, 2);
                for _ in 0..20 {
                    assert_eq!(out.append(std::slice::from_ref(&line)).lines, 1);
                }
                out
            })
        };
        let writers = [write("a", path.clone()), write("b", path.clone())];
        let mut whole = 0;
        let pipe = io::BufReader::new(File::open(&path).expect("opens"));
        for line in io::BufRead::lines(pipe).take(40) {
            let line = line.expect("text");
            let first = line.chars().next().expect("a letter");
            assert!(line.chars().all(|letter| letter == first), "a torn line");
            whole += 1;
        }
        assert_eq!(whole, 40);
        for writer in writers {
            writer.join().expect("no panic");
        }
    }

    #[test]
    fn what_cannot_be_opened_or_has_no_room_is_an_error_and_no_panic() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [
            folder.path().to_owned(),
            folder.path().join("no/such"),
            "/dev/full".into(),
        ] {
            let written = Appender::file(&path, 100, 1).append(&lines(&["1"]));
            assert_eq!(written.lines, 0, "{}", path.display());
            assert!(written.error.is_some(), "{}", path.display());
        }
    }
}
