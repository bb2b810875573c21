//! `infertap replay FILE`: the requests of a recording as a table or as JSON lines, or the metrics they add up to.
//!
//! Owns: what is printed. Records and metrics go to the output, remarks on the recording itself (length, losses, a cut
//! end) to the notes. Refuses: exit codes and argument parsing (`main`, `cli`).

use super::priced::{Pricing, Sums};
use super::replay::{ReplaySummary, Replayed, replay_priced};
use super::table::{self, Tally};
use super::{Ending, Reader, RecordingError};
use crate::export::metrics::{AgentLoss, Format, Metrics, MetricsConfig, MetricsError};
use crate::{print, usage};
use infertap_abi::DropReason;
use infertap_core::ledger::By;
use infertap_core::{EngineKind, EventKind, Nanos, Observation, PipelineConfig};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

/// What `infertap replay` is asked to do.
#[derive(Debug, Clone, Default)]
pub struct ReplayCommand {
    /// The recording; `-` is standard input.
    pub file: PathBuf,
    /// What to print.
    pub output: ReplayOutput,
    /// How requests are rebuilt.
    pub pipeline: PipelineConfig,
    /// What they cost.
    pub pricing: Pricing,
}

/// What to print.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplayOutput {
    /// A line a request for people, then a summary.
    #[default]
    Table,
    /// A JSON object a request.
    Json,
    /// The metrics as they stand at the end, in Prometheus text format.
    Metrics,
    /// Who used how much: a table for people, or as JSON.
    Sums {
        /// The rows.
        by: By,
        /// As JSON.
        json: bool,
    },
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// Printing.
    #[error("cannot print the replay")]
    Output(#[from] io::Error),
    /// Adding up.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

/// Replays a recording and prints what was asked for. What was read before damage is printed before the error is
/// returned.
pub fn replay_command(
    command: &ReplayCommand,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<(), ReplayError> {
    let mut reader = Reader::open(&command.file)?;
    let mut printer = Printer::new(command, &reader, out)?;
    let mut failed = None;
    let pricing = &command.pricing;
    let replayed = replay_priced(
        &mut reader,
        command.pipeline.clone(),
        pricing.money(),
        &mut |item| {
            if failed.is_none() {
                failed = printer.take(&item).err();
            }
        },
    );
    if let Some(error) = failed {
        return Err(error.into());
    }
    printer.finish(notes)?;
    let summary = replayed?;
    remarks(&reader, &summary, notes)?;
    if pricing.gpu.is_some() && summary.gpu_readings == 0 {
        writeln!(
            notes,
            "note: there is a price of GPUs, but no reading of one in the recording: what GPUs cost is not known"
        )?;
    }
    Ok(())
}

/// Metrics of a replay: what the live agent would have exported from the same events.
#[derive(Debug)]
pub struct ReplayMetrics {
    metrics: Metrics,
    dropped: BTreeMap<&'static str, u64>,
}

impl ReplayMetrics {
    /// Metrics before the first event.
    pub fn new(config: &MetricsConfig) -> Result<ReplayMetrics, MetricsError> {
        Ok(ReplayMetrics {
            metrics: Metrics::for_replay(config)?,
            dropped: BTreeMap::new(),
        })
    }

    /// Adds what the replay handed out.
    pub fn take(&mut self, item: &Replayed<'_>) {
        match item {
            Replayed::Event(kind) => {
                self.metrics.event(kind);
                match kind {
                    EventKind::EngineUp(engine) if engine.kind != EngineKind::Gateway => {
                        self.metrics.engine_up(engine);
                    }
                    EventKind::EngineDown { engine } => self.metrics.engine_down(engine),
                    _ => {}
                }
            }
            Replayed::At(_) => {}
            Replayed::Observation(observation) => self.metrics.apply(observation),
            Replayed::Dropped { reason, count } => {
                // A reason that this version does not know is one label, not any text that a file may hold.
                match DropReason::ALL.into_iter().find(|known| known.label() == *reason) {
                    Some(known) => {
                        let total = self.dropped.entry(known.label()).or_default();
                        *total = total.saturating_add(*count);
                        self.metrics.kernel_drops(known, *total);
                    }
                    None => self.metrics.agent_loss(AgentLoss::Other, *count),
                }
            }
            Replayed::Lost { records } => self.metrics.agent_loss(AgentLoss::Recorder, *records),
        }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

enum Printer<'a> {
    Table(&'a mut dyn Write, Tally),
    Json(&'a mut dyn Write, Tally),
    Metrics(&'a mut dyn Write, Box<ReplayMetrics>),
    Sums(&'a mut dyn Write, Box<Summing>),
}

/// What the sums are made of, and how they are printed.
struct Summing {
    sums: Sums,
    now: Nanos,
    json: bool,
}

impl Printer<'_> {
    fn new<'a>(
        command: &ReplayCommand,
        reader: &Reader,
        out: &'a mut dyn Write,
    ) -> Result<Printer<'a>, ReplayError> {
        let tally = Tally::new(command.pricing.is_priced());
        Ok(match command.output {
            ReplayOutput::Table => {
                tally.head(out)?;
                Printer::Table(out, tally)
            }
            ReplayOutput::Json => Printer::Json(out, tally),
            ReplayOutput::Sums { by, json } => {
                let sums = Sums::new(by, &command.pricing, reader.header());
                Printer::Sums(out, Box::new(Summing { sums, now: 0, json }))
            }
            ReplayOutput::Metrics => {
                Printer::Metrics(out, Box::new(ReplayMetrics::new(&MetricsConfig::default())?))
            }
        })
    }

    fn take(&mut self, item: &Replayed<'_>) -> io::Result<()> {
        let (out, tally, json) = match self {
            Printer::Metrics(_, metrics) => {
                metrics.take(item);
                return Ok(());
            }
            Printer::Sums(_, summing) => {
                match item {
                    Replayed::At(at) => summing.now = *at,
                    Replayed::Observation(observation) => summing.sums.take(summing.now, observation),
                    _ => {}
                }
                return Ok(());
            }
            Printer::Table(out, tally) => (out, tally, false),
            Printer::Json(out, tally) => (out, tally, true),
        };
        let Replayed::Observation(observation) = item else {
            return Ok(());
        };
        tally.take(observation);
        match observation {
            Observation::Finished(finished) if json => {
                serde_json::to_writer(&mut **out, &finished.record)?;
                out.write_all(b"\n")
            }
            Observation::Finished(finished) => tally.row(&mut **out, &finished.record),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, notes: &mut dyn Write) -> Result<(), ReplayError> {
        match self {
            Printer::Table(out, tally) => {
                tally.print(&mut **out)?;
                out.flush()?;
            }
            Printer::Json(out, tally) => {
                out.flush()?;
                tally.print(notes)?;
            }
            Printer::Sums(out, summing) => {
                summing.print(&mut **out)?;
                out.flush()?;
            }
            Printer::Metrics(out, metrics) => {
                out.write_all(metrics.metrics().encode(Format::Text)?.as_bytes())?;
                out.flush()?;
            }
        }
        Ok(())
    }
}

impl Summing {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let (report, seconds) = self.sums.report();
        if self.json {
            let report = serde_json::to_value(&report)?;
            return print::json(&report, out);
        }
        writeln!(
            out,
            "Usage of the recording, {}, by {}.\n",
            print::time(seconds),
            report.by.as_str()
        )?;
        usage::print_rows(&report, out)
    }
}

/// What a reader of the numbers has to know about the recording itself.
fn remarks(reader: &Reader, summary: &ReplaySummary, notes: &mut dyn Write) -> io::Result<()> {
    let header = reader.header();
    let seconds = summary
        .span
        .map_or(0.0, |(first, last)| last.saturating_sub(first) as f64 / 1e9);
    writeln!(
        notes,
        "recording: {} events over {seconds:.1} s, made by infertap {} on {} {}, content {}",
        summary.records,
        table::printable(&header.agent),
        table::printable(&header.kernel),
        table::printable(&header.arch),
        if header.with_content { "kept" } else { "blanked" },
    )?;
    if reader.ending() == Some(Ending::Truncated) {
        writeln!(
            notes,
            "warning: the recording ends in the middle of a frame (the recorder was killed, or the copy is incomplete): \
             replayed up to its last whole frame; requests in flight there are not shown"
        )?;
    }
    if summary.lost_records > 0 {
        writeln!(
            notes,
            "warning: the recorder could not keep up and left out {} events: the requests they belong to are incomplete",
            summary.lost_records
        )?;
    }
    for (reason, count) in &summary.dropped {
        writeln!(
            notes,
            "warning: {count} events were dropped before the recorder ({}): the requests they belong to are incomplete",
            table::printable(reason)
        )?;
    }
    for (error, count) in &summary.undecodable {
        writeln!(notes, "warning: {count} events could not be decoded: {error}")?;
    }
    Ok(())
}
