//! Programs that call functions in loops and time them, with the agent's probes on these functions and without, in turn.
//!
//! Owns: talking to such a program, the rounds, the table. Refuses: what is called (the program's) and what must be
//! attached (the caller's).

use super::setting::wait_gone;
use anyhow::{Context, Result, ensure};
use infertap_tests::{
    agent::{Agent, Start},
    bpf_census,
    child::Child,
    clock,
    exposition::Exposition,
    stats::Distribution,
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// A program that answers every line with one line of JSON, nanoseconds a call by the name of the function; the first line
/// comes unasked when it is ready. It is kept on core 0.
pub(super) struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(super) fn start(name: &str, mut command: Command, log: &Path) -> Result<Program> {
        let errors = std::fs::File::create(log).with_context(|| format!("can't write {}", log.display()))?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut child = Child::spawn_as_is(name, command, log)?;
        clock::pin_thread_to_core(child.pid(), 0)?;
        let pipes = child.take_stdin().zip(child.take_stdout());
        let (input, output) = pipes.context("a program without its pipes")?;
        let mut program = Program {
            child,
            input,
            output: BufReader::new(output),
        };
        program.answer()?;
        Ok(program)
    }

    fn answer(&mut self) -> Result<BTreeMap<String, f64>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| {
            format!(
                "the program answered {line:?}; its log ends with:\n{}",
                self.child.log_tail()
            )
        })
    }
}

/// What is measured.
pub(super) trait Subject {
    /// Makes ready for the next measurement; the processes to watch in it.
    fn ready(&mut self) -> Result<Vec<u32>>;

    /// Brings about what the agent must have seen first, when it has attached.
    fn settle(&mut self, _agent: &Agent) -> Result<()> {
        Ok(())
    }

    /// Nanoseconds a call, by the name of the function.
    fn measure(&mut self) -> Result<BTreeMap<String, f64>>;
}

impl Subject for Program {
    fn ready(&mut self) -> Result<Vec<u32>> {
        Ok(vec![self.child.pid()])
    }

    fn measure(&mut self) -> Result<BTreeMap<String, f64>> {
        self.input.write_all(b"\n").context("the program takes no more")?;
        self.answer()
    }
}

/// Several programs, one after the other. What each measures is told by its name and the function's.
pub(super) struct Programs(pub(super) Vec<(&'static str, Program)>);

impl Subject for Programs {
    fn ready(&mut self) -> Result<Vec<u32>> {
        let each = self.0.iter_mut().map(|(_, program)| program.ready());
        Ok(each.collect::<Result<Vec<_>>>()?.concat())
    }

    fn measure(&mut self) -> Result<BTreeMap<String, f64>> {
        let mut all = BTreeMap::new();
        for (of, program) in &mut self.0 {
            let each = program.measure()?;
            all.extend(each.into_iter().map(|(name, ns)| (format!("{of} {name}"), ns)));
        }
        Ok(all)
    }
}

/// What is compared.
pub(super) struct Comparison<'a> {
    pub(super) agent: &'a Path,
    pub(super) logs: &'a Path,
    pub(super) rounds: usize,
    /// Whether all that is to be measured is attached, by the agent's metrics; or what is missing.
    pub(super) attached: &'a dyn Fn(&Exposition) -> Result<(), String>,
    /// How many of the calls the agent has seen so far, by its metrics.
    pub(super) seen: &'a dyn Fn(&Exposition) -> f64,
}

/// What was measured of one function, by round: nanoseconds a call without the agent and with it.
pub(super) type Rounds = BTreeMap<String, Vec<(f64, f64)>>;

impl Comparison<'_> {
    pub(super) fn run(&self, subject: &mut dyn Subject) -> Result<Rounds> {
        let mut rounds = Rounds::new();
        // The first loops of a program find cold caches.
        subject.ready()?;
        subject.measure()?;
        for round in 0..self.rounds {
            let (without, with) = if round % 2 == 0 {
                let without = unwatched(subject)?;
                (without, self.watched(subject)?)
            } else {
                let with = self.watched(subject)?;
                (unwatched(subject)?, with)
            };
            for (name, without) in without {
                let with = with
                    .get(&name)
                    .with_context(|| format!("no {name} with the agent"))?;
                rounds.entry(name).or_default().push((without, *with));
            }
        }
        Ok(rounds)
    }

    fn watched(&self, subject: &mut dyn Subject) -> Result<BTreeMap<String, f64>> {
        let pids = subject.ready()?;
        let arguments = pids.iter().flat_map(|pid| ["--pid".to_owned(), pid.to_string()]);
        let agent = Agent::start(&Start {
            binary: self.agent.to_path_buf(),
            arguments: arguments.collect(),
            port: 0,
            log: self.logs.join("agent.log"),
            through: Vec::new(),
            leave: false,
        })?;
        wait(&agent, |metrics| (self.attached)(metrics))?;
        let programs = bpf_census::programs_of(agent.pid())?;
        ensure!(!programs.is_empty(), "the agent holds no BPF program");
        subject.settle(&agent)?;
        let before = (self.seen)(&agent.metrics()?);
        let measured = subject.measure()?;
        wait(&agent, |metrics| {
            let seen = (self.seen)(metrics) - before;
            (seen > 0.0)
                .then_some(())
                .ok_or_else(|| "the agent has seen none of the calls".to_owned())
        })?;
        agent.stop();
        wait_gone(&programs)?;
        Ok(measured)
    }
}

fn unwatched(subject: &mut dyn Subject) -> Result<BTreeMap<String, f64>> {
    subject.ready()?;
    subject.measure()
}

fn wait(agent: &Agent, ready: impl Fn(&Exposition) -> Result<(), String>) -> Result<()> {
    let start = Instant::now();
    while let Err(missing) = ready(&agent.metrics()?) {
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "{missing}; the agent's log ends with:\n{}",
            agent.log_tail()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// One line a function, in the order of `names`.
pub(super) fn table(rounds: &Rounds, names: &[(&str, &str)]) -> Result<Vec<String>> {
    let mut lines = vec![
        String::new(),
        "| call | ns without | ns with | the probes' share: median (quartiles) | probes |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for (name, probes) in names {
        let rounds = rounds
            .get(*name)
            .with_context(|| format!("{name} was not measured"))?;
        let of = |value: fn(&(f64, f64)) -> f64| Distribution::new(rounds.iter().map(value));
        let cost = of(|(without, with)| with - without);
        lines.push(format!(
            "| `{name}` | {:.0} | {:.0} | {:.0} ({:.0} – {:.0}) | {probes} |",
            of(|round| round.0).median(),
            of(|round| round.1).median(),
            cost.median(),
            cost.percentile(25.0),
            cost.percentile(75.0),
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_the_median_of_what_rounds_differ_by() {
        let rounds = Rounds::from([("f".to_owned(), vec![(10.0, 30.0), (11.0, 36.0), (20.0, 41.0)])]);
        let lines = table(&rounds, &[("f", "entry")]).expect("it was measured");
        assert_eq!(lines[3], "| `f` | 11 | 36 | 21 (20 – 25) | entry |");
        assert!(table(&rounds, &[("g", "entry")]).is_err());
    }

    #[test]
    fn a_program_is_asked_line_by_line_and_its_log_is_told_when_it_fails() {
        let folder = std::env::temp_dir().join(format!("infertap-loops-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo '{}'; read line; echo '{\"f\": 2.5}'; read line; echo oh >&2; exit 1",
        ]);
        let mut program = Program::start("a shell", command, &folder.join("log")).expect("it starts");
        let measured = program.measure().expect("an answer");
        assert_eq!(measured, BTreeMap::from([("f".to_owned(), 2.5)]));
        let error = program.measure().expect_err("it ends").to_string();
        std::fs::remove_dir_all(&folder).expect("it was made");
        assert!(error.contains("oh"), "{error}");
    }
}
