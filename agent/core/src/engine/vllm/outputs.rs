//! What an engine core tells an API server: one message per step.
//!
//! Owns: the outputs of each request, and the scheduler's statistics. Refuses: keeping token ids, log
//! probabilities, tensors, the answers of utility calls.

use super::{
    ShapeError, TokenIds, array,
    layouts::{Struct, Use, Version},
};
use crate::{
    Nanos,
    wire::{
        msgpack::{Kind, MsgpackError, Reader},
        zmtp::Message,
    },
};

/// One step of the engine, as one API server is told of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step<'a> {
    /// Which engine core, where several share the load.
    pub engine_index: u64,
    /// When the step's outputs were made.
    pub at: Option<Nanos>,
    /// What requests of this API server got in it.
    pub outputs: Vec<Output<'a>>,
    /// The scheduler's numbers; every API server is told them by turns, or only one is.
    pub stats: Option<SchedulerStats>,
    /// The message's end is missing: there may have been more outputs.
    pub cut: bool,
}

/// What one request got in a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output<'a> {
    /// The request's id within the engine.
    pub engine_id: &'a str,
    /// Tokens that the step gave it.
    pub new_tokens: u32,
    /// Their ids.
    pub new_ids: TokenIds<'a>,
    /// It is finished, for this reason.
    pub finish: Option<FinishReason>,
    /// The stop string, or the stop token's number, that ended it.
    pub stop: Option<StopReason<'a>>,
    /// What has happened to it since its last output, in order.
    pub events: Vec<LifecycleEvent>,
    /// Prompt tokens that were in the cache; since 0.20 with the first output only.
    pub cached_tokens: Option<u64>,
    /// Prompt tokens; with the first output only, since 0.20.
    pub prompt_tokens: Option<u64>,
}

/// What ended a request beside its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason<'a> {
    /// A stop string.
    Text(&'a str),
    /// A stop token.
    Token(i64),
}

/// Why a request is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-sequence or stop token, or a stop string.
    Stop,
    /// Its token bound, or the context's.
    Length,
    /// The client gave it up.
    Abort,
    /// The engine failed it.
    Error,
    /// It repeated itself.
    Repetition,
}

impl FinishReason {
    /// vLLM's own word.
    pub const fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Abort => "abort",
            FinishReason::Error => "error",
            FinishReason::Repetition => "repetition",
        }
    }
}

/// A stage of a request's way through the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// It joined the queue.
    Queued,
    /// The scheduler took it.
    Scheduled,
    /// The scheduler put it back: others needed its memory.
    Preempted,
}

/// When a stage was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LifecycleEvent {
    /// The stage.
    pub stage: Lifecycle,
    /// When.
    pub at: Nanos,
}

/// The scheduler's numbers after a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SchedulerStats {
    /// Requests that run.
    pub running: u64,
    /// Requests that wait, deferred ones included.
    pub waiting: u64,
    /// Used part of the key-value cache, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Tokens that were looked up in the prefix cache since the last telling.
    pub prefix_queried: u64,
    /// Those of them that were found.
    pub prefix_hit: u64,
    /// What was in the step, where the engine is told to count it (`--enable-logging-iteration-details`).
    pub iteration: Option<Iteration>,
}

/// What was in a step, by the engine's own count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Iteration {
    /// Requests that read their prompt, or a part of it.
    pub prefilling: u64,
    /// Prompt tokens that they read.
    pub prefill_tokens: u64,
    /// Requests that generated.
    pub decoding: u64,
}

pub(super) fn read(message: Message<'_>, release: Option<Version>) -> Result<Step<'_>, ShapeError> {
    let body = message.part(0).ok_or(ShapeError::Parts)?;
    let cut = !body.is_whole();
    let mut reader = Reader::new(body.bytes);
    // A core that starts says so in a map.
    if reader.peek() == Ok(Kind::Map) {
        return Ok(Step::default());
    }
    let (mut step, whole) = array::read(
        &mut reader,
        Struct::Outputs,
        release,
        cut,
        |step: &mut Step<'_>, use_, reader| {
            match use_ {
                Use::EngineIndex => step.engine_index = array::count(reader, "engine_index")?,
                Use::Outputs => {
                    for _ in 0..reader.array()? {
                        let (output, whole) = output(reader, release, cut)?;
                        if !whole {
                            return Err(MsgpackError::Truncated.into());
                        }
                        step.outputs.push(output);
                    }
                }
                Use::SchedulerStats => {
                    if !reader.nil()? {
                        step.stats = Some(stats(reader)?);
                    }
                }
                Use::Timestamp => step.at = Some(nanos(reader, "timestamp")?),
                _ => reader.skip()?,
            }
            Ok(())
        },
    )?;
    step.cut = !whole;
    if reader.rest().is_empty() {
        Ok(step)
    } else {
        Err(ShapeError::Value("the message's end"))
    }
}

fn output<'a>(
    reader: &mut Reader<'a>,
    release: Option<Version>,
    cut: bool,
) -> Result<(Output<'a>, bool), ShapeError> {
    let (output, whole) = array::read(
        reader,
        Struct::Output,
        release,
        cut,
        |output: &mut Output<'a>, use_, reader| {
            match use_ {
                Use::RequestId => output.engine_id = reader.str()?,
                Use::NewTokenIds => {
                    output.new_ids = TokenIds::read(reader)?;
                    output.new_tokens = output.new_ids.len();
                }
                Use::FinishReason => {
                    if !reader.nil()? {
                        output.finish = Some(finish_reason(reader.int()?)?);
                    }
                }
                Use::StopReason => {
                    output.stop = match reader.peek()? {
                        Kind::Str => Some(StopReason::Text(reader.str()?)),
                        Kind::Int => Some(StopReason::Token(reader.int()?)),
                        _ => {
                            reader.skip()?;
                            None
                        }
                    };
                }
                Use::Events => {
                    if !reader.nil()? {
                        for _ in 0..reader.array()? {
                            output.events.push(event(reader)?);
                        }
                    }
                }
                Use::NumCachedTokens => {
                    // Every output repeats it; -1 before the scheduler has looked.
                    output.cached_tokens = u64::try_from(reader.int()?).ok();
                }
                Use::PrefillStats => {
                    if !reader.nil()? {
                        prefill(output, reader)?;
                    }
                }
                _ => reader.skip()?,
            }
            Ok(())
        },
    )?;
    if output.engine_id.is_empty() && whole {
        return Err(ShapeError::Value("request_id"));
    }
    Ok((output, whole))
}

fn finish_reason(value: i64) -> Result<FinishReason, ShapeError> {
    Ok(match value {
        0 => FinishReason::Stop,
        1 => FinishReason::Length,
        2 => FinishReason::Abort,
        3 => FinishReason::Error,
        4 => FinishReason::Repetition,
        _ => return Err(ShapeError::Value("finish_reason")),
    })
}

fn event(reader: &mut Reader<'_>) -> Result<LifecycleEvent, ShapeError> {
    let (mut stage, mut at) = (None, None);
    array::map(reader, |key, reader| {
        match key {
            "type" => {
                stage = Some(match reader.int()? {
                    1 => Lifecycle::Queued,
                    2 => Lifecycle::Scheduled,
                    3 => Lifecycle::Preempted,
                    _ => return Err(ShapeError::Value("the type of an event")),
                });
            }
            "timestamp" => at = Some(nanos(reader, "the timestamp of an event")?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match (stage, at) {
        (Some(stage), Some(at)) => Ok(LifecycleEvent { stage, at }),
        _ => Err(ShapeError::Value("an event")),
    }
}

fn prefill(output: &mut Output<'_>, reader: &mut Reader<'_>) -> Result<(), ShapeError> {
    let (mut prompt, mut cached) = (None, None);
    array::map(reader, |key, reader| {
        match key {
            "num_prompt_tokens" => prompt = Some(array::count(reader, "num_prompt_tokens")?),
            "num_cached_tokens" => cached = Some(array::count(reader, "num_cached_tokens")?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // Other maps may stand in this place in other layouts.
    if prompt.is_none() || cached > prompt {
        return Err(ShapeError::Value("prefill_stats"));
    }
    (output.prompt_tokens, output.cached_tokens) = (prompt, cached);
    Ok(())
}

fn stats(reader: &mut Reader<'_>) -> Result<SchedulerStats, ShapeError> {
    let (mut running, mut waiting) = (None, None);
    let mut stats = SchedulerStats::default();
    array::map(reader, |key, reader| {
        match key {
            "num_running_reqs" => running = Some(array::count(reader, "num_running_reqs")?),
            "num_waiting_reqs" => waiting = Some(array::count(reader, "num_waiting_reqs")?),
            "num_skipped_waiting_reqs" => stats.waiting = array::count(reader, "num_skipped_waiting_reqs")?,
            // The first name was in use until 0.8.
            "gpu_cache_usage" | "kv_cache_usage" => {
                let usage = array::number(reader, "kv_cache_usage")?;
                stats.kv_usage = Some(usage.min(1.0));
            }
            "prefix_cache_stats" if reader.peek()? == Kind::Map => prefix_cache(&mut stats, reader)?,
            "iteration_details" if reader.peek()? == Kind::Map => stats.iteration = iteration(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let (Some(running), Some(waiting)) = (running, waiting) else {
        return Err(ShapeError::Value("scheduler_stats"));
    };
    stats.running = running;
    stats.waiting = stats.waiting.saturating_add(waiting);
    Ok(stats)
}

fn prefix_cache(stats: &mut SchedulerStats, reader: &mut Reader<'_>) -> Result<(), ShapeError> {
    array::map(reader, |key, reader| {
        match key {
            "queries" => stats.prefix_queried = array::count(reader, "queries")?,
            "hits" => stats.prefix_hit = array::count(reader, "hits")?,
            _ => return Ok(false),
        }
        Ok(true)
    })
}

/// `None` where nothing was in it: cores that share layers step along with the others.
fn iteration(reader: &mut Reader<'_>) -> Result<Option<Iteration>, ShapeError> {
    let mut iteration = Iteration::default();
    array::map(reader, |key, reader| {
        match key {
            "num_ctx_requests" => iteration.prefilling = array::count(reader, "num_ctx_requests")?,
            "num_ctx_tokens" => iteration.prefill_tokens = array::count(reader, "num_ctx_tokens")?,
            "num_generation_requests" => {
                iteration.decoding = array::count(reader, "num_generation_requests")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Some(iteration).filter(|it| it.prefilling > 0 || it.decoding > 0))
}

/// Seconds of `time.monotonic()`, which reads the clock that the kernel's timestamps come from.
fn nanos(reader: &mut Reader<'_>, what: &'static str) -> Result<Nanos, ShapeError> {
    let seconds = array::number(reader, what)?;
    // A century; past 2^53 microseconds a double would round visibly anyway.
    if seconds > 3.2e9 {
        return Err(ShapeError::Value(what));
    }
    Ok((seconds * 1e9).round() as Nanos)
}
