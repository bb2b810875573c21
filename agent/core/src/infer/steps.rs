//! The step clock of one engine: when its steps ended, from what all its streams wrote together.
//!
//! Owns: clusters of writes, which of them follow each other step by step, the usual length of a step that only decodes.
//! Refuses: what a step means for a request (`plan`).

use crate::Nanos;
use std::collections::VecDeque;

/// Steps remembered: half a minute of a fast engine. A request whose arrival is older than the oldest is judged by what
/// is left.
const MAX_STEPS: usize = 2048;
/// Streams of one step that are told apart; a larger batch is still one cluster, held together by time alone.
const MAX_EMITTERS: usize = 512;
/// Lengths that the usual length is taken from.
const LENGTHS: usize = 64;
/// Writes that are further apart than this before any step is known are of two steps.
const FIRST_WINDOW: Nanos = 2_000_000;
/// Two writes of one stream within this are one step's (a token and its finish reason; a chunk in two writes).
const SAME_WRITE: Nanos = 300_000;
/// A step is stretched when it is longer than the usual one by this factor: others' work was in it.
const STRETCHED: f64 = 1.6;
/// Chunks that it takes to see that streams do not write in step, and to believe that they do.
const DOUBT: f64 = 32.0;
const TRUST: f64 = 192.0;
/// More than this, smoothed, means that there is no single clock: it is reached when 4 % of the chunks are out of step.
const OUT_OF_STEP: f64 = 0.2;
/// Before anything was seen: some forty chunks of streams beside each other have to come in step to be believed.
const UNKNOWN: f64 = 0.25;
/// Writes of one step follow each other within this part of the usual step.
const WINDOW: f64 = 0.35;

/// A stream: request and choice.
pub(super) type Stream = (u64, u32);

/// The end of one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Its first write.
    pub(super) at: Nanos,
    /// Its last one.
    pub(super) until: Nanos,
    /// A stream wrote in this one and in the one before: nothing but one step lies between them.
    pub(super) follows: bool,
    /// Arrival number of the earliest request whose first token it brought.
    pub(super) first_of: Option<u64>,
}

/// The clock.
#[derive(Debug)]
pub(super) struct Steps {
    ends: VecDeque<Step>,
    /// Who wrote in the newest step, and in the one before.
    now: Vec<Stream>,
    before: Vec<Stream>,
    lengths: VecDeque<Nanos>,
    usual: Option<Nanos>,
    /// Part of the chunks, of those that could show it, that came later than one step after their stream's last one,
    /// smoothed.
    out_of_step: f64,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps {
            ends: VecDeque::new(),
            now: Vec::new(),
            before: Vec::new(),
            lengths: VecDeque::new(),
            usual: None,
            out_of_step: UNKNOWN,
        }
    }
}

impl Steps {
    /// A stream wrote content; `first`: its first. Answers whether that began a new step.
    pub(super) fn wrote(&mut self, stream: Stream, first: bool, at: Nanos) -> bool {
        let window = self.window();
        // Records of several processors may be a little out of order.
        let at = self.ends.back().map_or(at, |step| at.max(step.until));
        if let Some(step) = self.ends.back_mut() {
            let again = self.now.contains(&stream) && at - step.until > SAME_WRITE;
            if !again && at - step.until <= window {
                step.until = at;
                step.follows = step.follows || self.before.contains(&stream);
                if self.now.len() < MAX_EMITTERS && !self.now.contains(&stream) {
                    self.now.push(stream);
                    self.judge(stream, first);
                }
                return false;
            }
        }
        self.measure();
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.clear();
        self.now.push(stream);
        if self.ends.len() >= MAX_STEPS {
            self.ends.pop_front();
        }
        self.ends.push_back(Step {
            at,
            until: at,
            follows: self.before.contains(&stream),
            first_of: None,
        });
        self.judge(stream, first);
        true
    }

    /// Whether the streams write in step with each other, as those of one scheduler do. Several schedulers behind one
    /// front end do not, nor do streams that are held back and sent every few tokens.
    pub(super) fn one_clock(&self) -> bool {
        self.out_of_step <= OUT_OF_STEP
    }

    /// The newest step brought the first token of this request.
    pub(super) fn first_token(&mut self, arrival: u64) {
        if let Some(step) = self.ends.back_mut() {
            step.first_of = Some(step.first_of.map_or(arrival, |seen| seen.min(arrival)));
        }
    }

    /// How long a step usually takes that prefills nothing; absent until a few were seen.
    pub(super) fn usual(&self) -> Option<Nanos> {
        self.usual
    }

    /// Writes of one step lie this close together.
    pub(super) fn window(&self) -> Nanos {
        self.usual
            .map_or(FIRST_WINDOW, |usual| (usual as f64 * WINDOW) as Nanos)
    }

    /// The steps, newest last.
    pub(super) fn all(&self) -> &VecDeque<Step> {
        &self.ends
    }

    /// Length of step `index`, from the end of the one before; absent where streams do not show that they follow.
    pub(super) fn length(&self, index: usize) -> Option<Nanos> {
        let step = self.ends.get(index).filter(|step| step.follows)?;
        Some(step.at - self.ends.get(index.checked_sub(1)?)?.at)
    }

    /// Step `index` had the usual length and brought no first token: no prompt was worked on in it.
    pub(super) fn only_decoded(&self, index: usize) -> bool {
        let (Some(usual), Some(length)) = (self.usual, self.length(index)) else {
            return false;
        };
        self.ends.get(index).is_some_and(|step| step.first_of.is_none())
            && length as f64 <= usual as f64 * STRETCHED
    }

    /// Heap bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.ends.capacity() * size_of::<Step>()
            + (self.now.capacity() + self.before.capacity()) * size_of::<Stream>()
            + self.lengths.capacity() * size_of::<Nanos>()
    }

    fn judge(&mut self, stream: Stream, first: bool) {
        if first {
            return;
        }
        match self.before.as_slice() {
            // A stream is always in step with itself.
            [only] if *only == stream => {}
            before if before.contains(&stream) => self.out_of_step -= self.out_of_step / TRUST,
            _ => self.out_of_step += (1.0 - self.out_of_step) / DOUBT,
        }
    }

    /// The newest step is over: takes its length for the usual one, which lies in the lower quarter of all, because what
    /// prefill adds only makes steps longer.
    fn measure(&mut self) {
        let Some(last) = self.ends.len().checked_sub(1) else {
            return;
        };
        if self.ends[last].first_of.is_some() {
            return;
        }
        let Some(length) = self.length(last) else { return };
        if self.lengths.len() >= LENGTHS {
            self.lengths.pop_front();
        }
        self.lengths.push_back(length);
        let mut sorted: Vec<Nanos> = self.lengths.iter().copied().collect();
        sorted.sort_unstable();
        self.usual = (sorted.len() >= 4).then(|| sorted[(sorted.len() - 1) / 4]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Two streams, a step every 50 ms, written 1 ms apart, in changing order.
    fn two_streams(steps: &mut Steps, from: Nanos, count: u64) {
        for step in 0..count {
            let at = from + step * 50 * MS;
            let (first, second) = if step % 2 == 0 { (1, 2) } else { (2, 1) };
            steps.wrote((first, 0), step == 0, at);
            steps.wrote((second, 0), step == 0, at + MS);
        }
    }

    #[test]
    fn writes_of_several_streams_are_one_step() {
        let mut steps = Steps::default();
        two_streams(&mut steps, 100 * MS, 20);
        assert_eq!(steps.all().len(), 20);
        assert_eq!(steps.usual(), Some(50 * MS));
        assert!((1..20).all(|i| steps.length(i) == Some(50 * MS)));
    }

    #[test]
    fn a_pause_is_no_step_and_a_stretched_step_is_told() {
        let mut steps = Steps::default();
        two_streams(&mut steps, 0, 10);
        // Both end; another stream comes later.
        steps.wrote((3, 0), true, 5_000 * MS);
        assert_eq!(steps.length(10), None);
        steps.wrote((3, 0), false, 5_050 * MS);
        steps.wrote((3, 0), false, 5_250 * MS);
        assert!(steps.only_decoded(11));
        assert_eq!(
            (steps.length(12), steps.only_decoded(12)),
            (Some(200 * MS), false)
        );
    }

    #[test]
    fn several_tokens_a_step_are_one_step() {
        let mut steps = Steps::default();
        for step in 0..10u64 {
            for part in 0..3 {
                steps.wrote((1, 0), step + part == 0, step * 40 * MS + part * 50_000);
            }
        }
        assert_eq!(steps.all().len(), 10);
        assert_eq!(steps.usual(), Some(40 * MS));
    }

    #[test]
    fn streams_of_two_clocks_are_told() {
        let mut steps = Steps::default();
        two_streams(&mut steps, 0, 50);
        assert!(steps.one_clock());
        for step in 0..200u64 {
            // A step every 20 ms and one every 23 ms.
            steps.wrote((1, 0), false, 3_000 * MS + step * 20 * MS);
            if step * 20 / 23 != step.saturating_sub(1) * 20 / 23 {
                steps.wrote((2, 0), false, 3_000 * MS + step * 20 * MS + 9 * MS);
            }
        }
        assert!(!steps.one_clock());
    }

    #[test]
    fn memory_is_bounded() {
        let mut steps = Steps::default();
        for i in 0..20_000u64 {
            steps.wrote((i % 4000, 0), i < 4000, i * 1_000);
        }
        assert!(steps.all().len() <= MAX_STEPS && steps.now.len() <= MAX_EMITTERS);
    }
}
