//! Tail sampling: which requests keep their record, decided when they have ended and all of them is known.
//!
//! Owns: the rules, the share of the rest that is kept, the cap on records a minute. Refuses: keeping records (the store's)
//! and counting decisions as metrics (the exporter's). Time comes in with each decision.
//!
//! A rule that matches asks for one record of its own allowance; the record is kept when any rule had one left. So no rule
//! ever keeps more than its cap within a minute, whatever else keeps the same requests.

mod cap;
mod rule;
#[cfg(test)]
mod tests;
mod usual;

pub use rule::{Rule, Rules};

use crate::{Cause, Nanos, Status, observation::Finished};
use cap::Cap;
use usual::{Measure, Usual};

/// When a request keeps its record.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingConfig {
    /// TTFT from which on a request is slow, seconds; `None`: no such limit.
    pub slow_ttft_s: Option<f64>,
    /// The same for the P99 of its gaps between tokens.
    pub slow_itl_s: Option<f64>,
    /// The same for its end-to-end time.
    pub slow_e2e_s: Option<f64>,
    /// Requests of a model and scene after which one is also slow when it is above their running P99; 0: never.
    pub usual_after: u64,
    /// Share of the requests that match no rule which is kept all the same, 0 to 1.
    pub head_rate: f64,
    /// Records that each rule keeps in any 60 s.
    pub per_minute: usize,
}

impl Default for SamplingConfig {
    fn default() -> SamplingConfig {
        SamplingConfig {
            slow_ttft_s: Some(5.0),
            slow_itl_s: Some(0.5),
            slow_e2e_s: Some(120.0),
            usual_after: 1000,
            head_rate: 0.01,
            per_minute: 60,
        }
    }
}

/// What became of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decision {
    /// Rules that it matched; none for one of the rest that is not kept.
    pub matched: Rules,
    /// Those of them that had kept as many as they may.
    pub capped: Rules,
}

impl Decision {
    /// Its record is kept.
    pub fn kept(self) -> bool {
        self.matched != self.capped
    }
}

/// Decides. Its memory is bounded: 256 pairs of model and scene at most, some 5 KiB each.
#[derive(Debug)]
pub struct Sampler {
    config: SamplingConfig,
    usual: Usual,
    caps: [Cap; Rule::ALL.len()],
    gaps: Vec<(f64, u32)>,
}

impl Sampler {
    /// One that has seen nothing.
    pub fn new(config: SamplingConfig) -> Sampler {
        Sampler {
            usual: Usual::new(config.usual_after),
            caps: std::array::from_fn(|_| Cap::new(config.per_minute)),
            gaps: Vec::new(),
            config,
        }
    }

    /// Other rules from here on. How long requests usually take, and what was kept within the last minute, stays known.
    pub fn configure(&mut self, config: SamplingConfig) {
        self.usual.ask_after(config.usual_after);
        self.caps.iter_mut().for_each(|cap| cap.limit(config.per_minute));
        self.config = config;
    }

    /// Decides on a request that has ended. `found` are rules of which others know that it matches them, as they depend on more
    /// than the request: [`Rule::NearContextLimit`], [`Rule::OverBudget`]. `now` does not go back.
    pub fn decide(&mut self, now: Nanos, finished: &Finished, found: Rules) -> Decision {
        let mut matched = self.match_rules(now, finished);
        found.iter().for_each(|rule| matched.insert(rule));
        if matched.is_empty() && sampled(&finished.record.trace_id, self.config.head_rate) {
            matched.insert(Rule::Head);
        }
        let mut capped = Rules::default();
        for rule in matched.iter() {
            if !self.caps[rule as usize].take(now) {
                capped.insert(rule);
            }
        }
        Decision { matched, capped }
    }

    fn match_rules(&mut self, now: Nanos, finished: &Finished) -> Rules {
        let record = &finished.record;
        let mut matched = Rules::default();
        match record.status {
            Status::ClientError => matched.insert(Rule::ClientError),
            Status::ServerError => matched.insert(Rule::ServerError),
            Status::Timeout => matched.insert(Rule::Timeout),
            Status::Cancelled => matched.insert(Rule::Cancelled),
            Status::Ok | Status::Incomplete => {}
        }
        let diagnosed = record.diagnosis.as_ref().and_then(|diagnosis| diagnosis.cause);
        if diagnosed == Some(Cause::Interference) {
            matched.insert(Rule::Interference);
        }
        // What was touched by loss has no durations to be believed.
        if record.status == Status::Incomplete || !record.incomplete.is_empty() {
            return matched;
        }
        let measured = [
            (Measure::Ttft, record.ttft_s, self.config.slow_ttft_s),
            (
                Measure::Itl,
                p99(&finished.gaps, &mut self.gaps),
                self.config.slow_itl_s,
            ),
            (Measure::E2e, record.e2e_s, self.config.slow_e2e_s),
        ];
        // What failed or was broken off says nothing of how long requests usually take.
        let usual = record.status == Status::Ok;
        let group = self
            .usual
            .group(now, &finished.labels.model, &finished.labels.scene);
        for (measure, seconds, limit) in measured {
            let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0) else {
                continue;
            };
            // Before it is added: a request is compared with the others.
            if limit.is_some_and(|limit| seconds >= limit) || group.exceeds(measure, seconds) {
                matched.insert(measure.rule());
            }
            if usual {
                group.add(now, measure, seconds);
            }
        }
        matched
    }
}

/// The P99 of the gaps between tokens, where a gap that k tokens share is k gaps; `None` without gaps. The largest gap where
/// there are fewer than a hundred.
fn p99(gaps: &[(f64, u32)], sorted: &mut Vec<(f64, u32)>) -> Option<f64> {
    sorted.clear();
    sorted.extend(
        gaps.iter()
            .filter(|(_, tokens)| *tokens > 0)
            .map(|&(seconds, tokens)| (seconds / f64::from(tokens), tokens)),
    );
    sorted.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let all: u64 = sorted.iter().map(|(_, tokens)| u64::from(*tokens)).sum();
    let mut above = all / 100;
    for &(seconds, tokens) in &*sorted {
        if above < u64::from(tokens) {
            return Some(seconds);
        }
        above -= u64::from(tokens);
    }
    None
}

/// Whether a trace is within the share `rate` of all. The same for everybody who sees the trace, so that the records of
/// several agents belong together.
fn sampled(trace_id: &str, rate: f64) -> bool {
    // FNV-1a, spread: a client may number its traces, or keep half of the id for something else.
    let hash = trace_id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let part = (crate::identity::mix(hash) >> 11) as f64 / (1_u64 << 53) as f64;
    part < rate
}
