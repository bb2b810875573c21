//! `infertap`: parse, run, exit code.
//!
//! Owns: the exit code and the printing of errors. Refuses: everything else; each subcommand's work is in its module.

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};
use infertap::cli::{Asking, Cli, Command, ConfigCommand, CostArgs, CostCommand, ReplayArgs, Settings};
use infertap::config::{self, Loaded, Override};
use infertap::recording::{self, ReplayCommand, ReplayOutput};
use infertap::usage::{Question, cost_command};
use infertap::{budget, count, discover, doctor, prefix, records, run, trace};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = error.to_string();
            for cause in error.chain().skip(1).map(ToString::to_string) {
                // Many errors tell their cause themselves.
                if !text.contains(&cause) {
                    text = format!("{text}\n  because {cause}");
                }
            }
            // Standard error may be closed; then there is nobody to tell.
            let _ = writeln!(io::stderr(), "infertap: {text}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => {
            let loaded = load(&args.settings, args.overrides())?;
            let reload = run::Reload {
                file: loaded.file.clone(),
                load: Box::new(move || read(&args.settings, args.overrides()).map(|loaded| loaded.config)),
            };
            run::run(&loaded.config, reload)?;
        }
        Command::Engines { settings, json } => {
            let loaded = load(&settings, settings.overrides())?;
            discover::engines_command(&loaded.config, json, &mut io::stdout().lock())?;
        }
        Command::Tokens { settings, engine } => {
            let loaded = load(&settings, settings.overrides())?;
            let (input, mut out) = (io::stdin().lock(), io::stdout().lock());
            count::tokens_command(&loaded.config, engine.as_deref(), input, &mut out)?;
        }
        Command::Prefix(asking) => {
            let json = asking.json;
            prefix::prefix_command(address(asking)?, json, &mut io::stdout().lock())?;
        }
        Command::Doctor { settings, json } => {
            let loaded = load(&settings, settings.overrides())?;
            let able = doctor::doctor_command(&loaded.config, json, &mut io::stdout().lock())?;
            return Ok(if able {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Command::Budget(Asking { agent, json, config }) => {
            let settings = Settings {
                config,
                ..Settings::default()
            };
            let loaded = load(&settings, Vec::new())?;
            budget::budget_command(&loaded.config, agent, json, &mut io::stdout().lock())?;
        }
        Command::Cost(args) => cost(args)?,
        Command::Requests(args) => {
            let loaded = load_file(args.config.clone())?;
            records::requests_command(&loaded.config, &args, &mut io::stdout().lock())?;
        }
        Command::Show(args) => {
            let loaded = load_file(args.config.clone())?;
            records::show_command(&loaded.config, &args, &mut io::stdout().lock())?;
        }
        Command::Trace(args) => {
            let asking = Asking {
                agent: args.agent,
                json: true,
                config: args.config.clone(),
            };
            trace::trace_command(
                address(asking)?,
                &args,
                &mut io::stdout().lock(),
                &mut io::stderr().lock(),
            )?;
        }
        Command::Record(args) => {
            let loaded = load(&args.settings, args.settings.overrides())?;
            let duration = args.duration.map(config::Span::duration);
            run::record(
                &loaded.config,
                &run::RecordOptions {
                    file: args.file,
                    with_content: args.with_content,
                    duration,
                },
            )?;
        }
        Command::Replay(args) => replay(args)?,
        Command::Config {
            command: ConfigCommand::Check { file },
        } => {
            let checked = config::check_file(&file)?;
            writeln!(io::stdout(), "{}: valid", file.display())?;
            if let Some(missing) = checked.config.pods_wanted() {
                writeln!(io::stderr(), "{}: {missing}; see docs/clients.md", file.display())?;
            }
        }
        Command::Config {
            command: ConfigCommand::Print(settings),
        } => {
            let loaded = load(&settings, settings.overrides())?;
            io::stdout().write_all(config::effective(&loaded).as_bytes())?;
        }
        Command::Config {
            command: ConfigCommand::Hash { what, file },
        } => {
            let text = if let Some(file) = file {
                std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?
            } else {
                let mut text = Vec::new();
                io::stdin().lock().read_to_end(&mut text)?;
                text
            };
            writeln!(io::stdout(), "{}", config::hash(what, &text))?;
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "infertap", &mut script);
            io::stdout().write_all(&script)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the agent that is asked listens.
fn address(asking: Asking) -> anyhow::Result<SocketAddr> {
    if let Some(agent) = asking.agent {
        return Ok(agent);
    }
    let settings = Settings {
        config: asking.config,
        ..Settings::default()
    };
    Ok(load(&settings, settings.overrides())?.config.server.listen)
}

/// The configuration, where a command has no flags that change it.
fn load_file(config: Option<std::path::PathBuf>) -> anyhow::Result<Loaded> {
    let settings = Settings {
        config,
        ..Settings::default()
    };
    load(&settings, Vec::new())
}

fn load(settings: &Settings, overrides: Vec<Override>) -> anyhow::Result<Loaded> {
    read(settings, overrides).context("cannot start with this configuration")
}

fn read(settings: &Settings, overrides: Vec<Override>) -> Result<Loaded, config::Problems> {
    // Variables that are not text are none of ours: all our keys are.
    let env = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    config::load(settings.config.as_deref(), env, overrides)
}

fn replay(args: ReplayArgs) -> anyhow::Result<()> {
    let output = match (args.by, args.json, args.metrics) {
        (Some(by), json, _) => ReplayOutput::Sums { by, json },
        (_, _, true) => ReplayOutput::Metrics,
        (_, true, _) => ReplayOutput::Json,
        _ => ReplayOutput::Table,
    };
    let mut command = ReplayCommand {
        file: args.file,
        output,
        ..ReplayCommand::default()
    };
    if args.config.is_some() {
        let config = load_file(args.config)?.config;
        command.pricing = config.replay_pricing();
        command.pipeline = config.pipeline();
    }
    command.pipeline.engine_hooks &= !args.no_hooks;
    let mut out = io::BufWriter::new(io::stdout().lock());
    recording::replay_command(&command, &mut out, &mut io::stderr().lock())?;
    Ok(())
}

fn cost(args: CostArgs) -> anyhow::Result<()> {
    let seconds = |span: config::Span| span.duration().as_secs();
    let (question, asking) = match args.command {
        None => {
            let since = seconds(args.since);
            (Question::Cost { by: args.by, since }, args.asking)
        }
        Some(CostCommand::Heaviest {
            order,
            since,
            limit,
            asking,
        }) => {
            let since = seconds(since);
            (Question::Heaviest { order, since, limit }, asking)
        }
        Some(CostCommand::Growth { hours, asking }) => (Question::Growth { hours }, asking),
    };
    let json = asking.json;
    cost_command(address(asking)?, &question, json, &mut io::stdout().lock())
}

/// The reader of our output has seen enough (`infertap … | head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
