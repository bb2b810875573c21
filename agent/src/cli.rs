//! Command line: subcommands and flags.
//!
//! Owns: their names, help texts, and the translation of flags into configuration keys. Refuses: doing anything.

mod records;
mod replay;
mod trace;

pub use records::{RequestsArgs, ShowArgs};
pub use replay::ReplayArgs;
pub use trace::TraceArgs;

use crate::config::{Hashed, LogFormat, Override, SocketProbe};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use infertap_core::ledger::{By, Order};
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::Value;

/// A tap on LLM inference: request timelines, tokens and cost, observed from outside with eBPF.
///
/// `infertap doctor` tells what works on this host, `infertap engines` what would be watched, and `infertap run` (as
/// root) watches it and serves Prometheus metrics on http://127.0.0.1:9464/metrics.
#[derive(Debug, Parser)]
#[command(name = "infertap", version, propagate_version = true, max_term_width = 120)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the engines of this host and serve metrics, until interrupted.
    Run(RunArgs),
    /// Show which engines run here, what would be probed, and what not and why. Attaches nothing.
    Engines {
        /// Settings.
        #[command(flatten)]
        settings: Settings,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Count the prompt tokens of requests as an engine that runs here does. Reads their JSON bodies, one a line, from
    /// standard input; prints a JSON object for each: the count with the engine's own tokenizer, and the estimate that
    /// stands in where there is none.
    Tokens {
        /// Settings.
        #[command(flatten)]
        settings: Settings,
        /// The engine, as `infertap engines` names it; not needed where only one runs.
        engine: Option<String>,
    },
    /// Show how much of the prompts begins like prompts before them, what the engine's prefix cache made of it, and what
    /// breaks it. Asks the agent that runs.
    Prefix(Asking),
    /// Check what works on this host, what does not, and what to do about it. Exits with 1 when `run` cannot work.
    Doctor {
        /// Settings.
        #[command(flatten)]
        settings: Settings,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show how much of each budget is used, and when it will be used up. Asks the agent that runs; where none does, tells what
    /// the last one left.
    Budget(Asking),
    /// Show who used how much: requests, tokens and money, by scene, model or client. Asks the agent that runs.
    Cost(CostArgs),
    /// Show requests whose records were kept: slow ones, failed ones, and a share of the rest. Reads the store, whether or not
    /// an agent runs.
    Requests(RequestsArgs),
    /// Show one request whose record was kept, its timeline drawn.
    Show(ShowArgs),
    /// Write what happened lately as a trace: requests with their phases, the engines' steps and load, GPUs. Open it in
    /// https://ui.perfetto.dev or chrome://tracing. Asks the agent that runs.
    Trace(TraceArgs),
    /// Record the raw events of the engines of this host into a file, for `replay`.
    Record(RecordArgs),
    /// Rebuild the requests of a recording.
    Replay(ReplayArgs),
    /// Check and show configurations.
    Config {
        /// What to do.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print shell completions, as in `infertap completions bash > /etc/bash_completion.d/infertap`.
    Completions {
        /// Shell.
        shell: Shell,
    },
}

/// `infertap config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a file: every mistake with its line.
    Check {
        /// File.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print the fingerprint of an API key or a system prompt, for a [[scene]] rule. One line end after it does not count.
    Hash {
        /// Of what.
        what: Hashed,
        /// File that holds it [default: standard input].
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Print the effective configuration, each key with its documentation and where its value comes from.
    Print(Settings),
}

/// Flags of every subcommand that uses the configuration.
#[derive(Debug, Clone, Default, Args)]
pub struct Settings {
    /// Configuration file [default: /etc/infertap/infertap.toml where it exists].
    #[arg(long, value_name = "FILE", env = "INFERTAP_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Watch this process and its descendants (may be given several times).
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Watch whoever listens on this TCP port (may be given several times).
    #[arg(long, value_name = "PORT", value_delimiter = ',')]
    pub port: Vec<u16>,
    /// Watch processes of this name, 15 bytes at most, with * and ? (may be given several times).
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub comm: Vec<String>,
    /// How sockets are read.
    #[arg(long, value_enum, value_name = "MODE")]
    pub socket_probe: Option<SocketProbe>,
    /// Log level or filter: error, warn, info, debug, trace, or as in "info,infertap::probe=debug".
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// How log lines are written.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Set any key of the configuration, as in --set capture.ring_bytes=16MiB (may be given several times).
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
}

/// `infertap run`.
#[derive(Debug, Clone, Default, Args)]
pub struct RunArgs {
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
    /// Address and port of the metrics and the API [default: 127.0.0.1:9464].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
}

/// `infertap cost`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CostArgs {
    /// Another question.
    #[command(subcommand)]
    pub command: Option<CostCommand>,
    /// What the rows are.
    #[arg(long, default_value = "scene", value_parser = by())]
    pub by: By,
    /// Usage of the last so long: by 15 minutes within two days, by days (UTC) beyond.
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub since: crate::config::Span,
    /// Whom to ask.
    #[command(flatten)]
    pub asking: Asking,
}

/// Other questions of `infertap cost`.
#[derive(Debug, Clone, Subcommand)]
pub enum CostCommand {
    /// The requests with most tokens, or the dearest ones.
    Heaviest {
        /// What makes a request heavy.
        #[arg(long, default_value = "tokens", value_parser = order())]
        order: Order,
        /// Those that ended within this time; 2d at most.
        #[arg(long, value_name = "TIME", default_value = "1h")]
        since: crate::config::Span,
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        /// Whom to ask.
        #[command(flatten)]
        asking: Asking,
    },
    /// The last hours against those before them: which scenes, models, clients and requests growth comes from, and whether
    /// there are more requests or larger ones.
    Growth {
        /// Hours that are compared with as many before them; 1 to 24.
        #[arg(long, value_name = "N", default_value_t = 1)]
        hours: u64,
        /// Whom to ask.
        #[command(flatten)]
        asking: Asking,
    },
}

/// Which agent is asked, and how its answer is printed.
#[derive(Debug, Clone, Default, Args)]
pub struct Asking {
    /// Address and port of the agent [default: server.listen of the configuration].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub agent: Option<SocketAddr>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Configuration file [default: /etc/infertap/infertap.toml where it exists].
    #[arg(long, value_name = "FILE", env = "INFERTAP_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

fn by() -> impl clap::builder::TypedValueParser<Value = By> {
    PossibleValuesParser::new(By::ALL.map(By::as_str)).try_map(|name| By::named(&name).ok_or("no dimension"))
}

fn order() -> impl clap::builder::TypedValueParser<Value = Order> {
    PossibleValuesParser::new(Order::ALL.map(Order::as_str))
        .try_map(|name| Order::named(&name).ok_or("no order"))
}

/// `infertap record`.
#[derive(Debug, Clone, Args)]
pub struct RecordArgs {
    /// File to write; it must not exist yet.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Keep the text of prompts and answers. Without this it is blanked in place, so that a recording can be shared.
    #[arg(long)]
    pub with_content: bool,
    /// Stop after this time, as in 30s or 5m [default: until interrupted].
    #[arg(long, value_name = "TIME")]
    pub duration: Option<crate::config::Span>,
    /// Settings.
    #[command(flatten)]
    pub settings: Settings,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("write KEY=VALUE, as in server.recent_requests=100".to_owned()),
    }
}

impl Settings {
    /// What the flags say, as configuration keys.
    pub fn overrides(&self) -> Vec<Override> {
        let mut out = Vec::new();
        for (key, text) in &self.set {
            out.push(Override {
                key: key.clone(),
                value: crate::config::text_value(key, text),
                flag: "--set".to_owned(),
            });
        }
        let mut flag = |name: &str, key: &str, value: Value| {
            out.push(Override {
                key: key.to_owned(),
                value,
                flag: format!("--{name}"),
            });
        };
        if !self.pid.is_empty() {
            flag(
                "pid",
                "discover.pids",
                self.pid
                    .iter()
                    .map(|pid| i64::from(*pid))
                    .collect::<Vec<_>>()
                    .into(),
            );
        }
        if !self.port.is_empty() {
            flag(
                "port",
                "discover.ports",
                self.port
                    .iter()
                    .map(|port| i64::from(*port))
                    .collect::<Vec<_>>()
                    .into(),
            );
        }
        if !self.comm.is_empty() {
            flag("comm", "discover.comms", self.comm.clone().into());
        }
        if let Some(value) = self
            .socket_probe
            .as_ref()
            .and_then(|mode| Value::try_from(mode).ok())
        {
            flag("socket-probe", "capture.socket_probe", value);
        }
        if let Some(level) = &self.log_level {
            flag("log-level", "log.level", level.clone().into());
        }
        if let Some(value) = self
            .log_format
            .as_ref()
            .and_then(|format| Value::try_from(format).ok())
        {
            flag("log-format", "log.format", value);
        }
        out
    }
}

impl RunArgs {
    /// What the flags say, as configuration keys.
    pub fn overrides(&self) -> Vec<Override> {
        let mut out = self.settings.overrides();
        out.extend(self.listen.map(|listen| Override {
            key: "server.listen".to_owned(),
            value: listen.to_string().into(),
            flag: "--listen".to_owned(),
        }));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_are_keys() {
        let cli = Cli::try_parse_from([
            "infertap",
            "run",
            "--pid",
            "7",
            "--pid",
            "8,9",
            "--port=8000",
            "--comm",
            "my-*",
            "--listen",
            "[::1]:1",
            "--socket-probe",
            "uprobe",
            "--log-level",
            "debug",
            "--log-format",
            "json",
            "--set",
            "capture.ring_bytes = 1MiB",
        ])
        .expect("valid");
        let Command::Run(args) = cli.command else {
            panic!("not run")
        };
        let keys: Vec<_> = args
            .overrides()
            .into_iter()
            .map(|o| format!("{} {} {}", o.flag, o.key, o.value))
            .collect();
        expect_test::expect![[r#"
            --set capture.ring_bytes "1MiB"
            --pid discover.pids [7, 8, 9]
            --port discover.ports [8000]
            --comm discover.comms ["my-*"]
            --socket-probe capture.socket_probe "uprobe"
            --log-level log.level "debug"
            --log-format log.format "json"
            --listen server.listen "[::1]:1""#]]
        .assert_eq(&keys.join("\n"));
    }

    #[test]
    fn nonsense_is_refused() {
        for args in [
            &["infertap", "run", "--port", "70000"][..],
            &["infertap", "run", "--listen", "here"],
            &["infertap", "run", "--set", "x"],
            &["infertap", "replay", "f", "--json", "--metrics"],
            &["infertap", "record"],
            &["infertap", "record", "f", "--duration", "soon"],
        ] {
            assert!(Cli::try_parse_from(args).is_err(), "{args:?}");
        }
    }
}
