//! What SGLang's messages have told of requests that are under way.
//!
//! Owns: the bounded table of such requests by id, which is the id of the response. Refuses: reading messages
//! (`engine::sglang`).
//!
//! Outputs tell totals, and several processes pass the same ones on, so the highest is kept and none counts twice. A
//! scheduler's own times come first; those that the detokenizer passes on have gone through the wall clock.

use super::{Inside, KEEP_ENDED, KEEP_SILENT, MAX_ENGINES, MAX_RESPONSES, Seen, Told};
use crate::{
    Nanos,
    engine::sglang::{Added, Output, Outputs, Times},
    observation::EngineReport,
    timeline::Gaps,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

#[derive(Debug, Default)]
pub(super) struct Requests {
    engines: HashMap<Arc<str>, Engine>,
}

#[derive(Debug, Default)]
struct Engine {
    requests: HashMap<Arc<str>, Request>,
    /// Oldest first; some may be gone.
    order: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct Request {
    input: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    cached: Option<u64>,
    retractions: u64,
    times: Times,
    /// When the message came that told the most tokens.
    last_token: Option<Nanos>,
    gaps: Gaps,
    /// When anything was told of it last.
    touched: Nanos,
    finished: bool,
    /// Messages may have been missed since it began.
    lossy: bool,
}

impl Inside {
    /// Requests entered the scheduler of an engine of SGLang's.
    pub(crate) fn sglang_added(&mut self, engine: &Arc<str>, added: &[Added<'_>], seen: Seen) {
        let engines = &mut self.sglang.engines;
        if engines.len() >= MAX_ENGINES && !engines.contains_key(engine) {
            return;
        }
        let engine = engines.entry(engine.clone()).or_default();
        for added in added {
            // Routers pass the same request on.
            let request = engine.request(added.rid);
            request.input = request.input.or(added.prompt_tokens);
            request.touched = seen.now;
        }
    }

    /// Requests got tokens. Answers what is to be told of the engine.
    pub(crate) fn sglang_outputs(
        &mut self,
        id: &Arc<str>,
        model: Option<&Arc<str>>,
        told: &Outputs<'_>,
        seen: Seen,
    ) -> Option<EngineReport> {
        let engine = self.sglang.engines.get_mut(id)?;
        let mut preemptions = 0;
        for output in &told.outputs {
            if let Some(request) = engine.requests.get_mut(output.rid) {
                preemptions += request.take(output, seen);
            }
        }
        if preemptions > 0 {
            self.preempted(id, preemptions);
        }
        (preemptions > 0).then(|| EngineReport {
            engine: id.clone(),
            model: model.cloned(),
            load: None,
            prefix_queried_tokens: 0,
            prefix_hit_tokens: 0,
            preemptions,
        })
    }
}

impl Requests {
    pub(super) fn take(&mut self, engine: &str, id: &str, complete: bool) -> Option<Told> {
        let request = self.engines.get_mut(engine)?.requests.remove(id)?;
        // A total is not too little because one before it was missed, but the last one may be missing.
        let counted = request.finished || (!complete && !request.lossy);
        let Times {
            scheduled,
            prefilled,
            completed,
            ..
        } = request.times;
        Some(Told {
            shared: None,
            scheduled,
            first_token: prefilled,
            last_token: completed.or(request.last_token).filter(|_| counted),
            input_tokens: request.input,
            cached_tokens: request.cached,
            output_tokens: request.output.filter(|_| counted),
            reasoning_tokens: request.reasoning.filter(|_| counted),
            requests: 1,
            gaps: if counted {
                request.gaps.seconds()
            } else {
                Vec::new()
            },
        })
    }

    /// Forgets what nobody has come for.
    pub(super) fn sweep(&mut self, now: Nanos) {
        for engine in self.engines.values_mut() {
            engine.requests.retain(|_, request| {
                let silent = now.saturating_sub(request.touched);
                silent < KEEP_ENDED || (silent < KEEP_SILENT && !request.finished)
            });
        }
    }

    pub(super) fn lost(&mut self, engine: &str) {
        if let Some(engine) = self.engines.get_mut(engine) {
            for request in engine.requests.values_mut() {
                request.lossy = true;
            }
        }
    }

    pub(super) fn down(&mut self, engine: &str) {
        self.engines.remove(engine);
    }

    pub(super) fn bytes(&self) -> usize {
        let of = |engine: &Engine| {
            let gaps = engine.requests.values().map(|request| request.gaps.heap_bytes());
            gaps.sum::<usize>()
                + engine.requests.len() * (size_of::<Request>() + 96)
                + engine.order.len() * 16
        };
        self.engines.values().map(of).sum()
    }
}

impl Engine {
    fn request(&mut self, rid: &str) -> &mut Request {
        let id = if let Some((id, _)) = self.requests.get_key_value(rid) {
            id.clone()
        } else {
            while self.requests.len() >= MAX_RESPONSES
                && let Some(oldest) = self.order.pop_front()
            {
                self.requests.remove(&oldest);
            }
            if self.order.len() >= 2 * MAX_RESPONSES {
                let requests = &self.requests;
                self.order.retain(|id| requests.contains_key(id));
            }
            let id: Arc<str> = rid.into();
            self.order.push_back(id.clone());
            id
        };
        self.requests.entry(id).or_default()
    }
}

impl Request {
    /// Answers how often it was put back into the queue since it was told last.
    fn take(&mut self, output: &Output<'_>, seen: Seen) -> u64 {
        self.touched = seen.now;
        self.input = self.input.or(output.prompt_tokens);
        self.cached = self.cached.max(output.cached_tokens);
        self.reasoning = self.reasoning.max(output.reasoning_tokens);
        let Times {
            queued,
            scheduled,
            prefilled,
            completed,
        } = output.times;
        self.times.queued = self.times.queued.or(queued);
        self.times.scheduled = self.times.scheduled.or(scheduled);
        self.times.prefilled = self.times.prefilled.or(prefilled);
        self.times.completed = self.times.completed.or(completed);
        if output.output_tokens > self.output {
            let grown = output
                .output_tokens
                .unwrap_or(0)
                .saturating_sub(self.output.unwrap_or(0));
            // The first token has no gap before it; others of its message came since the prompt was done.
            let (from, tokens) = match self.last_token {
                Some(last) => (Some(last), grown),
                None => (self.times.prefilled, grown.saturating_sub(1)),
            };
            if let Some(from) = from
                && tokens > 0
            {
                let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
                self.gaps
                    .push(seen.now.saturating_sub(from), tokens, seen.max_gaps);
            }
            self.output = output.output_tokens;
            if grown > 0 {
                self.last_token = Some(seen.now);
            }
        }
        self.finished |= output.finished.is_some();
        let again = output.retractions.unwrap_or(0).saturating_sub(self.retractions);
        self.retractions += again;
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str = "sglang-30000";

    fn seen(now: Nanos) -> Seen {
        Seen {
            front: 1,
            now,
            max_gaps: 10,
        }
    }

    fn added(inside: &mut Inside, rid: &str) {
        let added = Added {
            rid,
            prompt_tokens: Some(54),
        };
        inside.sglang_added(&ENGINE.into(), &[added], seen(50));
    }

    fn output(inside: &mut Inside, at: Nanos, output: Output<'_>) -> u64 {
        let outputs = Outputs {
            outputs: vec![output],
            cut: false,
        };
        let report = inside.sglang_outputs(&ENGINE.into(), None, &outputs, seen(at));
        report.map_or(0, |report| report.preemptions)
    }

    fn so_far(rid: &str, tokens: u64) -> Output<'_> {
        Output {
            rid,
            output_tokens: Some(tokens),
            cached_tokens: Some(48),
            reasoning_tokens: Some(tokens / 2),
            times: Times {
                queued: Some(90),
                scheduled: Some(100),
                prefilled: Some(150),
                completed: None,
            },
            ..Output::default()
        }
    }

    #[test]
    fn totals_that_are_passed_on_count_once() {
        let mut inside = Inside::default();
        added(&mut inside, "a");
        added(&mut inside, "a");
        let mut first = so_far("a", 1);
        first.retractions = Some(2);
        assert_eq!(output(&mut inside, 155, first), 2);
        assert_eq!(output(&mut inside, 156, first), 0, "told already");
        let last = Output {
            finished: Some("stop"),
            times: Times {
                scheduled: Some(101),
                ..Times::default()
            },
            ..so_far("a", 4)
        };
        output(&mut inside, 170, last);
        output(&mut inside, 175, last);
        output(&mut inside, 180, so_far("stranger", 9));
        assert_eq!(
            inside.take(ENGINE, "a", None, true),
            Some(Told {
                shared: None,
                scheduled: Some(100),
                first_token: Some(150),
                last_token: Some(170),
                input_tokens: Some(54),
                cached_tokens: Some(48),
                output_tokens: Some(4),
                reasoning_tokens: Some(2),
                requests: 1,
                gaps: vec![(0.0, 3)],
            })
        );
        assert_eq!(inside.take(ENGINE, "a", None, true), None, "once");
    }

    #[test]
    fn a_total_is_believed_when_it_is_the_last() {
        let mut inside = Inside::default();
        for (rid, lossy, finished, complete, expected) in [
            ("whole", false, true, true, Some(3)),
            ("whole in spite of a loss", true, true, true, Some(3)),
            ("not at its end", false, false, true, None),
            ("cancelled", false, false, false, Some(3)),
            ("cancelled with a loss", true, false, false, None),
        ] {
            added(&mut inside, rid);
            if lossy {
                inside.lost(ENGINE);
            }
            let told = Output {
                finished: finished.then_some("length"),
                ..so_far(rid, 3)
            };
            output(&mut inside, 9, told);
            let told = inside.take(ENGINE, rid, None, complete).expect("known");
            assert_eq!(told.output_tokens, expected, "{rid}");
            assert_eq!((told.input_tokens, told.scheduled), (Some(54), Some(100)));
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut inside = Inside::default();
        for i in 0..3 * MAX_RESPONSES {
            added(&mut inside, &format!("r{i}"));
            if i % 2 == 0 {
                inside.take(ENGINE, &format!("r{i}"), None, true);
            }
        }
        let engine = &inside.sglang.engines[ENGINE];
        assert!(engine.requests.len() <= MAX_RESPONSES && engine.order.len() <= 2 * MAX_RESPONSES);
        assert!(inside.bytes() > 0);
        inside.down(ENGINE, &mut Vec::new());
        assert_eq!(inside.bytes(), 0);
    }
}
