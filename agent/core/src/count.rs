//! Counts that somebody else makes, with the model's tokenizer, for requests whose engine and response told none.
//!
//! Owns: what is kept of a request for that, when a count is asked for, how long its record waits, and what becomes of it
//! without one. Refuses: tokenizers (the agent's: they read files), and keeping content longer than until it is counted.
//!
//! The record of such a request is held until its count comes, at most [`PipelineConfig::count_wait_ns`]; then the estimate
//! stands in ([`estimate`](crate::estimate)).

mod kept;

pub(crate) use kept::{Budget, Kept};

use crate::{
    Nanos, Observation, PipelineConfig, Source,
    content::Heard,
    estimate::{self, Family},
    observation::{Finished, Labels, TokenDirection},
    protocol::Protocol,
    timeline::Timeline,
    tokens::Tokens,
};
use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
};

/// Records that wait for a count at once.
const MAX_HELD: usize = 1024;

/// What is to be counted.
#[derive(Debug, Clone)]
pub struct CountJob {
    /// The request's id, for [`Counted::id`].
    pub id: u64,
    /// Engine instance id.
    pub engine: Arc<str>,
    /// Served model.
    pub model: Arc<str>,
    /// Its prompt is to be counted.
    pub input: bool,
    /// What was generated is to be counted.
    pub output: bool,
    /// What it said. Gone from memory when nobody holds it any more.
    pub content: Arc<Content>,
}

/// What a request said.
#[derive(Debug)]
pub struct Content {
    protocol: &'static str,
    kept: Kept,
}

impl Content {
    /// The protocol's name.
    pub fn protocol(&self) -> &'static str {
        self.protocol
    }

    /// The request's body, its coding undone; empty when it was not kept.
    pub fn request(&self) -> &[u8] {
        self.kept.request()
    }

    /// What each choice has generated.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.kept.texts()
    }
}

/// An answer to a [`CountJob`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The job's.
    pub id: u64,
    /// Prompt tokens, and whether they were counted or estimated.
    pub input: Option<(u64, Source)>,
    /// Generated tokens, likewise.
    pub output: Option<(u64, Source)>,
    /// How it went.
    pub outcome: CountOutcome,
}

/// How an attempt to count ended. `outcome` label of `infertap_token_counts_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CountOutcome {
    /// Counted with the model's tokenizer.
    Counted,
    /// Too much waits to be counted already.
    QueueFull,
    /// The count did not come in time.
    Late,
    /// The engine's tokenizer was not found, or can't be used.
    NoTokenizer,
    /// It holds what can't be counted from outside: images, embeddings, tokens among text.
    Unsupported,
    /// Tokenizer or template failed on it.
    Failed,
    /// It is larger than is kept, or there was no memory for it.
    TooLarge,
    /// Part of it was not seen.
    Incomplete,
}

impl CountOutcome {
    /// Every outcome, in label order.
    pub const ALL: [CountOutcome; 8] = [
        CountOutcome::Counted,
        CountOutcome::QueueFull,
        CountOutcome::Late,
        CountOutcome::NoTokenizer,
        CountOutcome::Unsupported,
        CountOutcome::Failed,
        CountOutcome::TooLarge,
        CountOutcome::Incomplete,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            CountOutcome::Counted => "counted",
            CountOutcome::QueueFull => "queue_full",
            CountOutcome::Late => "late",
            CountOutcome::NoTokenizer => "no_tokenizer",
            CountOutcome::Unsupported => "unsupported",
            CountOutcome::Failed => "failed",
            CountOutcome::TooLarge => "too_large",
            CountOutcome::Incomplete => "incomplete",
        }
    }
}

impl Counted {
    /// The answer of one that could not count: both estimated.
    pub fn estimated(job: &CountJob, outcome: CountOutcome) -> Counted {
        let family = Family::of(&job.model);
        let of = |tokens: Option<u64>| tokens.map(|tokens| (tokens, Source::Estimate));
        Counted {
            id: job.id,
            input: job
                .input
                .then(|| of(estimate::prompt(family, job.content.request())))
                .flatten(),
            output: job
                .output
                .then(|| {
                    let texts = job.content.texts();
                    of(Some(texts.map(|text| estimate::text(family, text)).sum()))
                })
                .flatten(),
            outcome,
        }
    }
}

/// A request that has ended, but for its counts.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) id: u64,
    pub(crate) finished: Box<Finished>,
    pub(crate) tokens: Tokens,
    /// Choices that its generation time is shared by.
    pub(crate) choices: usize,
}

#[derive(Debug)]
struct Held {
    ending: Ending,
    job: CountJob,
}

/// Records that wait for their counts.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) budget: Budget,
    /// Of content that may be kept.
    pub(crate) heard: Budget,
    held: HashMap<u64, Held>,
    /// Until when each may wait; in order. Some may have been answered.
    deadlines: VecDeque<(Nanos, u64)>,
}

impl Counting {
    /// A request has ended, and its own account of its tokens is `ending.tokens`. Tells its record, or asks for a count.
    pub(crate) fn end(
        &mut self,
        ending: Ending,
        protocol: &'static str,
        kept: Option<Kept>,
        at: Nanos,
        config: &PipelineConfig,
        out: &mut Vec<Observation>,
    ) {
        let input = ending.tokens.input().is_none();
        let output = matches!(ending.tokens.output(), None | Some((_, Source::Chunk)));
        let Some(kept) = kept.filter(|_| config.count) else {
            tell(ending, out);
            return;
        };
        if let Some(outcome) = kept.lost() {
            if input {
                out.push(Observation::TokenCount(outcome));
            }
            tell(ending, out);
            return;
        }
        let job = CountJob {
            id: ending.id,
            engine: ending.finished.labels.engine.clone(),
            model: ending.finished.labels.model.clone(),
            input: input && !kept.request().is_empty(),
            output: output && kept.texts().next().is_some(),
            content: Arc::new(Content { protocol, kept }),
        };
        if !job.input && !job.output {
            tell(ending, out);
            return;
        }
        if self.held.len() >= MAX_HELD {
            let counted = Counted::estimated(&job, CountOutcome::QueueFull);
            settle(ending, counted, out);
            return;
        }
        self.deadlines
            .push_back((at.saturating_add(config.count_wait_ns), job.id));
        out.push(Observation::Count(Box::new(job.clone())));
        self.held.insert(job.id, Held { ending, job });
    }

    /// A count came. One that nobody waits for any more is dropped.
    pub(crate) fn counted(&mut self, counted: Counted, out: &mut Vec<Observation>) {
        if let Some(held) = self.held.remove(&counted.id) {
            settle(held.ending, counted, out);
        }
    }

    /// Time has passed: what has waited long enough is estimated.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        while let Some((deadline, id)) = self.deadlines.front().copied() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_front();
            if let Some(held) = self.held.remove(&id) {
                let counted = Counted::estimated(&held.job, CountOutcome::Late);
                settle(held.ending, counted, out);
            }
        }
    }

    /// Bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.budget.used()
            + self.heard.used()
            + self.held.len() * (size_of::<Held>() + 2048)
            + self.deadlines.len() * 16
    }
}

fn settle(mut ending: Ending, counted: Counted, out: &mut Vec<Observation>) {
    out.push(Observation::TokenCount(counted.outcome));
    ending.tokens.report_counted(counted.input, counted.output);
    let (input, output) = (ending.tokens.input(), ending.tokens.output());
    let finished = &mut *ending.finished;
    let client = finished.record.client;
    tell_growth(ending.id, &finished.labels, client, &mut ending.tokens, out);
    let record = &mut finished.record;
    let before = record.output_tokens;
    record.input_tokens = input.map(|(n, _)| n);
    record.output_tokens = output.map(|(n, _)| n);
    record.sources.input_tokens = input.map(|(_, source)| source);
    record.sources.output_tokens = output.map(|(_, source)| source);
    if before != record.output_tokens {
        record.tpot_s = match (record.decode_s, record.output_tokens) {
            (Some(decode), Some(tokens)) if record.chunks >= 2 => {
                Timeline::tpot_of(decode, tokens, ending.choices)
            }
            _ => None,
        };
    }
    finished.token_sources = [
        (TokenDirection::Input, record.sources.input_tokens),
        (TokenDirection::Output, record.sources.output_tokens),
    ];
    tell(ending, out);
}

fn tell(ending: Ending, out: &mut Vec<Observation>) {
    out.push(Observation::Finished(ending.finished));
}

/// Tells what was counted since it was last told.
pub(crate) fn tell_growth(
    request: u64,
    labels: &Labels,
    client: Option<IpAddr>,
    tokens: &mut Tokens,
    out: &mut Vec<Observation>,
) {
    let (input, output) = tokens.take_growth();
    for (direction, count) in [(TokenDirection::Input, input), (TokenDirection::Output, output)] {
        if count > 0 {
            let labels = labels.clone();
            out.push(Observation::Tokens {
                request,
                labels,
                client,
                direction,
                count,
            });
        }
    }
}

impl crate::context::Context<'_> {
    /// Room for what a request says, when counts may be asked for or prompts are compared.
    pub(crate) fn keep(&self) -> Option<Kept> {
        let limits = kept::Limits {
            one: self.config.count_request_bytes,
            all: self.config.count_bytes,
        };
        if !self.config.count && !self.config.prefix.enabled {
            return None;
        }
        let mut kept = Kept::new(&self.counting.budget, limits);
        if !self.config.count {
            kept.keep_request_only();
        }
        Some(kept)
    }

    /// Room for what a request and its answer say, when content of any scene is kept.
    pub(crate) fn hear(&self, protocol: &'static dyn Protocol) -> Option<Heard> {
        let (rules, limits) = (&self.config.content, self.config.content_limits);
        let any = rules.any();
        any.then(|| Heard::new(protocol, &self.counting.heard, rules, limits))
    }
}
