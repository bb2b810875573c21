//! Replaying: a recording through the core, in the recording's own time.
//!
//! Owns: virtual time, and the account of what was replayed and what was missing. Refuses: printing (`command`) and
//! any other source of time than the events.

use super::format::{Frame, Totals};
use super::priced::WallClock;
use super::{Ending, Reader, RecordingError};
use infertap_core::{Event, EventKind, Money, Nanos, Observation, Pipeline, PipelineConfig, RequestRecord};
use std::collections::BTreeMap;

/// How often the live agent tells the core the time.
const TICK_NS: Nanos = 100_000_000;
/// Ticks that a pause between two events is given at most; a longer one passes in longer ticks.
const MAX_TICKS: Nanos = 100_000;

/// What was replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Raw records handed to the core.
    pub records: u64,
    /// Raw records that could not be decoded, by error.
    pub undecodable: BTreeMap<String, u64>,
    /// Time of the first and of the last event, CLOCK_MONOTONIC nanoseconds; `None` without any.
    pub span: Option<(Nanos, Nanos)>,
    /// Events that the kernel side had dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Raw records that the recorder had not kept up with.
    pub lost_records: u64,
    /// Readings of GPUs that were in it.
    pub gpu_readings: u64,
    /// The end marker's totals; `None` when the recording was cut short.
    pub totals: Option<Totals>,
}

/// What a replay hands out, in order.
#[derive(Debug)]
pub enum Replayed<'a> {
    /// Event time has come here, CLOCK_MONOTONIC nanoseconds: what follows was told then.
    At(Nanos),
    /// An event, before the core takes it.
    Event(&'a EventKind<'a>),
    /// What the core told.
    Observation(&'a Observation),
    /// The kernel side had dropped events here.
    Dropped {
        /// Label of the reason.
        reason: &'a str,
        /// How many.
        count: u64,
    },
    /// The recorder could not keep up here.
    Lost {
        /// Raw records that are missing.
        records: u64,
    },
}

/// Drives a pipeline with every event of the recording and hands everything to `sink`.
///
/// The core's clock ticks every 100 ms of event time, as it does live. A recording that was cut short is replayed up to
/// its last whole frame.
///
/// # Errors
/// When the file can't be read on or is damaged; what came before has been handed out by then.
pub fn replay(
    reader: &mut Reader,
    config: PipelineConfig,
    sink: &mut dyn FnMut(Replayed<'_>),
) -> Result<ReplaySummary, RecordingError> {
    replay_priced(reader, config, Money::default(), sink)
}

/// As [`replay`], with prices: what holds on a day is decided by the recording's wall clock.
///
/// # Errors
/// As [`replay`].
pub fn replay_priced(
    reader: &mut Reader,
    config: PipelineConfig,
    money: Money,
    sink: &mut dyn FnMut(Replayed<'_>),
) -> Result<ReplaySummary, RecordingError> {
    let mut pipeline = Pipeline::new(config);
    let mut behind = Behind {
        money,
        wall: WallClock::of(reader.header()),
    };
    let mut clock = Clock::default();
    let mut summary = ReplaySummary::default();
    let mut out = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        let event = match frame {
            Frame::Record(record) => match Event::decode(record) {
                Ok(event) => {
                    summary.records += 1;
                    event
                }
                Err(error) => {
                    count(&mut summary.undecodable, error.to_string(), 1);
                    continue;
                }
            },
            Frame::EngineUp { at, engine } => Event {
                at,
                kind: EventKind::EngineUp(engine),
            },
            Frame::EngineDown { at, engine } => Event {
                at,
                kind: EventKind::EngineDown { engine },
            },
            Frame::Gpu { at, reading } => {
                summary.gpu_readings += 1;
                Event {
                    at,
                    kind: EventKind::Gpu(reading),
                }
            }
            Frame::Memory { at, reading } => Event {
                at,
                kind: EventKind::Memory(reading),
            },
            Frame::Drops { reason, count: n, .. } => {
                sink(Replayed::Dropped {
                    reason: &reason,
                    count: n,
                });
                count(&mut summary.dropped, reason, n);
                continue;
            }
            Frame::Lost { records, .. } => {
                sink(Replayed::Lost { records });
                summary.lost_records = summary.lost_records.saturating_add(records);
                continue;
            }
            Frame::Header(_) | Frame::End(_) => continue,
        };
        clock.advance(event.at, &mut |now| {
            pipeline.advance(now, &mut out);
        });
        summary.span = Some(match summary.span {
            None => (event.at, event.at),
            Some((first, last)) => (first.min(event.at), last.max(event.at)),
        });
        let at = event.at;
        sink(Replayed::At(at));
        behind.hand_out(at, &mut out, sink);
        sink(Replayed::Event(&event.kind));
        pipeline.handle(event, &mut out);
        behind.hand_out(at, &mut out, sink);
    }
    if let Some(Ending::Complete(totals)) = reader.ending() {
        summary.totals = Some(totals);
        clock.advance(totals.ended_monotonic_ns, &mut |now| {
            pipeline.advance(now, &mut out);
        });
    }
    if let Some(now) = clock.latest {
        pipeline.advance(now, &mut out);
        sink(Replayed::At(now));
        behind.hand_out(now, &mut out, sink);
    }
    Ok(summary)
}

/// What is behind the pipeline.
struct Behind {
    money: Money,
    wall: WallClock,
}

impl Behind {
    fn hand_out(
        &mut self,
        at: Nanos,
        observations: &mut Vec<Observation>,
        sink: &mut dyn FnMut(Replayed<'_>),
    ) {
        self.money.apply(self.wall.unix_ns(at) / 1_000_000, observations);
        for observation in observations.drain(..) {
            sink(Replayed::Observation(&observation));
        }
    }
}

/// Replays a whole recording with the default bounds; the finished requests in the order in which they ended.
pub fn replay_records(reader: &mut Reader) -> Result<(Vec<RequestRecord>, ReplaySummary), RecordingError> {
    let mut records = Vec::new();
    let summary = replay(reader, PipelineConfig::default(), &mut |item| {
        if let Replayed::Observation(Observation::Finished(finished)) = item {
            records.push(finished.record.clone());
        }
    })?;
    Ok((records, summary))
}

/// Event time: ticks are counted from the first event.
#[derive(Debug, Default)]
struct Clock {
    next_tick: Option<Nanos>,
    latest: Option<Nanos>,
}

impl Clock {
    /// Time is `now`: tells each tick that has passed. Records of several processors may be a little out of order;
    /// time does not go back for that.
    fn advance(&mut self, now: Nanos, tick: &mut dyn FnMut(Nanos)) {
        let now = self.latest.map_or(now, |latest| latest.max(now));
        self.latest = Some(now);
        let Some(mut next) = self.next_tick else {
            self.next_tick = Some(now.saturating_add(TICK_NS));
            return;
        };
        let step = TICK_NS.max(now.saturating_sub(next) / MAX_TICKS);
        while next <= now && next < Nanos::MAX {
            tick(next);
            next = next.saturating_add(step);
        }
        self.next_tick = Some(next);
    }
}

fn count(counts: &mut BTreeMap<String, u64>, key: String, n: u64) {
    let slot = counts.entry(key).or_default();
    *slot = slot.saturating_add(n);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(times: &[Nanos]) -> Vec<Nanos> {
        let mut clock = Clock::default();
        let mut told = Vec::new();
        for time in times {
            clock.advance(*time, &mut |now| told.push(now));
        }
        told
    }

    #[test]
    fn the_clock_ticks_every_100_ms_of_event_time_and_never_backwards() {
        const MS: Nanos = 1_000_000;
        assert_eq!(ticks(&[7]), Vec::<Nanos>::new());
        assert_eq!(
            ticks(&[7, 50 * MS, 320 * MS, 100 * MS, 410 * MS]),
            [100 * MS + 7, 200 * MS + 7, 300 * MS + 7, 400 * MS + 7]
        );
    }

    #[test]
    fn an_impossible_pause_takes_a_bounded_number_of_ticks() {
        let told = ticks(&[1, Nanos::MAX, Nanos::MAX]);
        assert!((MAX_TICKS as usize - 2..=MAX_TICKS as usize + 2).contains(&told.len()));
        assert!(told.is_sorted());
    }
}
