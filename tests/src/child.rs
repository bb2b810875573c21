//! Child processes that never outlive whoever started them.
//!
//! Owns: spawning into a process group of their own, the log file, ending the whole group on drop, on panic, and when this
//! process ends, in whatever way, with children that were not dropped (`groups`). Refuses: restarting.

mod groups;

use anyhow::{Context, Result, bail};
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{LazyLock, mpsc},
    thread,
    time::{Duration, Instant},
};

/// A running child.
#[derive(Debug)]
pub struct Child {
    name: String,
    log: PathBuf,
    process: std::process::Child,
    /// How it ended; its id is free for others from then on.
    status: Option<ExitStatus>,
    grace: Duration,
    /// It has come to its end, and is not waited for.
    left: bool,
    /// It runs as root while this process may not: signals go through `sudo kill`, which passes them on.
    pub privileged: bool,
}

impl Child {
    /// Starts `command` with its output in `log`. The child is in a process group of its own, so that an interrupt from
    /// the terminal reaches only the parent, who then ends the child in order.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Child> {
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
        }
        let file = File::create(log).with_context(|| format!("can't write {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        Self::spawn_as_is(name, command, log)
    }

    /// As [`Child::spawn`], leaving standard input and output as the command has them.
    pub fn spawn_as_is(name: &str, mut command: Command, log: &Path) -> Result<Child> {
        command.process_group(0);
        // SAFETY: prctl is async-signal-safe, and the closure touches nothing else.
        unsafe {
            command.pre_exec(|| {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let what = format!("can't start {name}: {}", command.get_program().display());
        let process = on_lasting_thread(move || command.spawn()).context(what)?;
        let child = Child {
            name: name.to_owned(),
            log: log.to_path_buf(),
            process,
            status: None,
            grace: Duration::from_secs(10),
            left: false,
            privileged: false,
        };
        groups::note(child.pid())?;
        Ok(child)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its standard output, where it was piped and not taken yet.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.process.stdout.take()
    }

    /// Its standard input, where it was piped and not taken yet.
    pub fn take_stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.process.stdin.take()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none()
            && let Ok(Some(status)) = self.process.try_wait()
        {
            // Whatever it has left behind in its group goes with it.
            self.kill_group();
            groups::forget(self.pid());
            self.status = Some(status);
        }
        self.status
    }

    /// Waits until `ready` says so. An error with the end of the log when the child ends or `limit` passes first.
    pub fn wait_ready(&mut self, limit: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                bail!(
                    "{} ended before it was ready ({status}); its log ends with:\n{}",
                    self.name,
                    self.log_tail()
                );
            }
            if ready() {
                return Ok(());
            }
            if start.elapsed() > limit {
                bail!(
                    "{} was not ready after {limit:?}; its log ends with:\n{}",
                    self.name,
                    self.log_tail()
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(3000)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("(can't read {}: {error})", self.log.display()))
    }

    /// Sends a signal to the process alone; nothing once it has ended.
    pub fn signal(&mut self, signal: i32) {
        if self.ended().is_some() {
            return;
        }
        if self.privileged {
            self.sudo_kill(signal, &self.pid().to_string());
        } else {
            // SAFETY: kill has no memory effects; the process is ours and not reaped yet, so its id is not reused.
            unsafe { libc::kill(self.pid() as i32, signal) };
        }
    }

    /// Asks the process to end (`SIGTERM`) and waits; the group is killed when that takes longer than ten seconds.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.signal(libc::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < self.grace && self.ended().is_none() {
            thread::sleep(Duration::from_millis(10));
        }
        self.kill()
    }

    /// As [`Child::stop`], but waits only until nothing of the program runs any more, and not for the kernel to close what
    /// it had open. How it ended is not known then.
    pub fn leave(&mut self) {
        self.signal(libc::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < self.grace && self.ended().is_none() {
            if self.is_exiting() {
                self.left = true;
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Whether the kernel has begun to take the process apart.
    fn is_exiting(&self) -> bool {
        /// `PF_EXITING` of the kernel's `sched.h`.
        const EXITING: u64 = 0x4;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // The name may hold anything, so fields are counted from its closing parenthesis: flags are the seventh.
        let flags = stat
            .rsplit_once(')')
            .and_then(|(_, fields)| fields.split_whitespace().nth(6)?.parse::<u64>().ok());
        flags.is_some_and(|flags| flags & EXITING != 0)
    }

    /// Ends it at once, as `kill -9` does, and waits.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        if self.ended().is_none() {
            self.kill_group();
            self.status = self.process.wait().ok();
            groups::forget(self.pid());
        }
        self.status
    }

    fn sudo_kill(&self, signal: i32, whom: &str) {
        let arguments = ["-n", "kill", &format!("-{signal}"), "--", whom];
        let status = Command::new("sudo")
            .args(arguments)
            .stderr(Stdio::null())
            .status();
        if !status.is_ok_and(|status| status.success()) && signal != libc::SIGKILL {
            eprintln!(
                "can't end {} (process {}) through sudo; end it by hand",
                self.name,
                self.pid()
            );
        }
    }

    fn kill_group(&self) {
        if self.privileged {
            self.sudo_kill(libc::SIGKILL, &format!("-{}", self.pid()));
            return;
        }
        // SAFETY: kill has no memory effects; the group was made for this child and holds only its descendants.
        unsafe { libc::kill(-(self.pid() as i32), libc::SIGKILL) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.left {
            self.stop();
        }
    }
}

/// The kernel's parent-death signal fires when the *thread* that forked ends, and tests run in threads of their own: so
/// every child is forked by one thread that lasts as long as the process.
fn on_lasting_thread<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    type Job = Box<dyn FnOnce() + Send>;
    static JOBS: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
        let (send, receive) = mpsc::channel::<Job>();
        thread::spawn(move || receive.into_iter().for_each(|job| job()));
        send
    });
    let (send, receive) = mpsc::channel();
    let sent = JOBS.send(Box::new(move || drop(send.send(job()))));
    match sent.ok().and_then(|()| receive.recv().ok()) {
        Some(result) => result,
        None => panic!("the thread that starts children is gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (Child, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let child = Child::spawn("a shell", command, &folder.path().join("log")).unwrap();
        (child, folder)
    }

    fn alive(pid: u32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let (mut child, folder) = shell("sleep 100 & echo $!; wait");
        let log = folder.path().join("log");
        child
            .wait_ready(Duration::from_secs(10), || {
                fs::read_to_string(&log).is_ok_and(|t| t.ends_with('\n'))
            })
            .unwrap();
        let grandchild: u32 = fs::read_to_string(&log).unwrap().trim().parse().unwrap();
        assert!(alive(grandchild));
        let pid = child.pid();
        drop(child);
        assert!(!alive(pid));
        for _ in 0..500 {
            if !alive(grandchild) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the grandchild lives on");
    }

    /// Names the log for the process that ends with a child.
    const ENDS: &str = "INFERTAP_TEST_CHILD_ENDS";
    /// Set where that process is killed, and does not exit.
    const KILLED: &str = "INFERTAP_TEST_CHILD_KILLED";

    /// The life of that process: nothing, in the run of tests that starts it.
    #[test]
    fn ends_with_a_child_that_is_never_dropped() {
        let Some(log) = std::env::var_os(ENDS) else {
            return;
        };
        let log = Path::new(&log);
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & echo $!; wait"]);
        let mut child = Child::spawn("a shell", command, log).unwrap();
        child
            .wait_ready(Duration::from_secs(10), || {
                fs::read_to_string(log).is_ok_and(|text| text.ends_with('\n'))
            })
            .unwrap();
        std::mem::forget(child);
        if std::env::var_os(KILLED).is_some() {
            // SAFETY: it ends this process, and nothing comes after it.
            unsafe { libc::raise(libc::SIGKILL) };
        }
    }

    #[test]
    fn the_groups_of_children_that_were_never_dropped_end_with_the_process_however_that_ends() {
        for killed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let log = folder.path().join("log");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["ends_with_a_child_that_is_never_dropped", "--test-threads=1"])
                .env(ENDS, &log)
                .stdout(Stdio::null());
            if killed {
                command.env(KILLED, "");
            }
            let status = command.status().unwrap();
            assert_eq!(status.success(), !killed);
            let grandchild: u32 = fs::read_to_string(&log).unwrap().trim().parse().unwrap();
            let start = Instant::now();
            while alive(grandchild) {
                assert!(start.elapsed() < Duration::from_secs(10), "it lives on");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    #[test]
    fn a_child_that_is_left_runs_no_more() {
        let (mut child, folder) = shell("trap 'echo last; exit' TERM; echo $$; while :; do sleep 0.01; done");
        let log = folder.path().join("log");
        let logged = || fs::read_to_string(&log).unwrap_or_default();
        child
            .wait_ready(Duration::from_secs(10), || !logged().is_empty())
            .unwrap();
        child.leave();
        assert!(child.ended().is_some() || child.is_exiting());
        assert!(logged().ends_with("last\n"), "{}", logged());
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let (mut child, _folder) = thread::spawn(|| shell("sleep 100")).join().unwrap();
        thread::sleep(Duration::from_millis(50));
        assert_eq!(child.ended(), None);
    }

    #[test]
    fn an_early_end_is_told_with_the_log() {
        let (mut child, _folder) = shell("echo no luck; exit 3");
        let error = child
            .wait_ready(Duration::from_secs(10), || false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("no luck") && error.contains('3'), "{error}");
    }
}
