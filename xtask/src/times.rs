//! What takes how long in a test run: builds, layers' steps, and each test that runs alone.
//!
//! Owns: reading a test executable's output while it comes, and the table of the slowest. Refuses: judging: how fast
//! this machine is fails no test.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::{
    io::{self, Read as _, Write as _},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// What took how long, in the order in which it ended.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<(String, Duration)>);

impl Times {
    /// Does `work` and notes how long it took.
    pub(crate) fn of<T>(&mut self, what: &str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.0.push((what.to_owned(), start.elapsed()));
        result
    }

    /// Runs a test executable that runs one test at a time, as [`sh::run`] does, and notes how long each test took.
    pub(crate) fn run_tests(&mut self, executable: &str, command: &mut Command) -> Result<()> {
        eprintln!("$ {}", sh::display(command));
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't start `{}`", sh::display(command)))?;
        let mut output = child.stdout.take().context("no standard output")?;
        let mut tests = Tests::default();
        let mut bytes = [0; 8192];
        loop {
            let n = match output.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("can't read what the tests print"),
            };
            tests.handle(&bytes[..n], Instant::now());
            let mut terminal = io::stdout().lock();
            terminal.write_all(&bytes[..n])?;
            terminal.flush()?;
        }
        let took = tests.finish(Instant::now());
        self.0.extend(
            took.into_iter()
                .map(|(test, time)| (format!("{executable} {test}"), time)),
        );
        let status = child.wait()?;
        if !status.success() {
            bail!("`{}` failed: {status}", sh::display(command));
        }
        Ok(())
    }

    /// Prints the `count` that took longest.
    pub(crate) fn print_slowest(&self, count: usize) {
        let mut all: Vec<&(String, Duration)> = self.0.iter().collect();
        all.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        for (what, time) in all.into_iter().take(count) {
            println!("{:7.1} s  {what}", time.as_secs_f64());
        }
    }
}

/// When which test began, by libtest's output: with one thread, it names a test when that begins.
#[derive(Debug, Default)]
struct Tests {
    line: Vec<u8>,
    current: Option<(String, Instant)>,
    ended: Vec<(String, Duration)>,
}

impl Tests {
    fn handle(&mut self, bytes: &[u8], at: Instant) {
        for byte in bytes {
            if *byte == b'\n' {
                if self.line.starts_with(b"test result: ") {
                    self.end(at);
                }
                self.line.clear();
            } else if self.line.len() < 300 {
                self.line.push(*byte);
                self.look(at);
            }
        }
    }

    /// A test's line has its name as soon as it begins, and what became of it much later.
    fn look(&mut self, at: Instant) {
        let name = self
            .line
            .strip_prefix(b"test ")
            .and_then(|rest| rest.strip_suffix(b" ... "));
        if let Some(name) = name {
            let name = String::from_utf8_lossy(name).into_owned();
            self.end(at);
            self.current = Some((name, at));
        }
    }

    fn end(&mut self, at: Instant) {
        if let Some((name, begun)) = self.current.take() {
            self.ended.push((name, at.saturating_duration_since(begun)));
        }
    }

    fn finish(mut self, at: Instant) -> Vec<(String, Duration)> {
        self.end(at);
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_lasts_until_the_next_begins() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut tests = Tests::default();
        tests.handle(b"\nrunning 2 tests\ntest a::b ... ", at(1));
        tests.handle(b"what it prints\nok\nte", at(4));
        tests.handle(b"st c ... ok\n\ntest result: ok. 2 passed\n", at(5));
        tests.handle(b"test result: ", at(9));
        let seconds = Duration::from_secs;
        let expected = [("a::b".to_owned(), seconds(4)), ("c".to_owned(), seconds(0))];
        assert_eq!(tests.finish(at(10)), expected);
    }

    #[test]
    fn a_test_that_ends_the_process_lasts_until_then() {
        let start = Instant::now();
        let mut tests = Tests::default();
        tests.handle(b"test a ... ", start);
        let ended = tests.finish(start + Duration::from_secs(3));
        assert_eq!(ended, [("a".to_owned(), Duration::from_secs(3))]);
    }
}
