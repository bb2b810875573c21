//! What a destination is to the house.
//!
//! Owns: the trait and the verdicts. Refuses: queues, delays and counters, which all destinations share (`courier`).

use crate::store::tables::record::KeptRecord;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Somewhere records are sent to. One that speaks HTTP implements [`HttpDestination`](super::HttpDestination) instead,
/// and is sent to by the house.
pub trait Destination: Send + Sync + 'static {
    /// A batch, ready to be sent, as often as it takes.
    type Payload: Send + Sync + 'static;

    /// Its name: `exporter` label of its metrics, and the section that configures it.
    fn name(&self) -> &'static str;

    /// Encodes a batch. It is not empty. Called where it may take its time.
    fn encode(&self, records: &[Arc<KeptRecord>]) -> Self::Payload;

    /// Tries once to deliver, and judges the answer. The future is dropped when the time for an attempt is over. It must
    /// not block the thread: what does has to be handed to `tokio::task::spawn_blocking`.
    fn send(&self, payload: &Self::Payload) -> impl Future<Output = Verdict> + Send;

    /// What it means that the time for an attempt was over: a destination that hangs, or a batch that it takes too long for.
    fn timed_out(&self, limit: Duration) -> Verdict {
        Verdict::Retry {
            reason: format!("no answer within {} s", limit.as_secs_f64()),
            after: None,
            fault: Fault::Unclear,
        }
    }
}

/// Whose fault it may be that something has to be tried again. Nothing is tried for ever but what an operator can mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The destination's, or of how it is reached, whatever the records are: nobody is there, credentials. An operator mends that,
    /// and all records wait for it as they are.
    Destination,
    /// It takes no more now, or not so much at once, or not these: smaller batches are tried, and a record that fails alone waits
    /// beside the queue, so that others pass it. It is not lost for that.
    Load,
    /// The destination's or a record's. As [`Fault::Load`]; but a record that fails alone again and again, while others are taken, is
    /// lost.
    Unclear,
}

/// How an attempt came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The batch was taken.
    Accepted {
        /// But for so many of its records, which are lost.
        rejected: usize,
        /// Why these were not.
        reason: Option<String>,
    },
    /// A part of the batch is to be tried again.
    Partly {
        /// Which records: their indices in the batch.
        again: Vec<usize>,
        /// How many of the others were rejected, and are lost.
        rejected: usize,
        /// What the destination said.
        reason: String,
        /// Not before this time.
        after: Option<Duration>,
        /// Whose fault it may be.
        fault: Fault,
    },
    /// The destination can't take it now.
    Retry {
        /// Why.
        reason: String,
        /// Not before this time, where the destination tells.
        after: Option<Duration>,
        /// Whose fault it may be.
        fault: Fault,
    },
    /// The destination will never take it: it is lost.
    Refused {
        /// Why.
        reason: String,
    },
    /// Too large, or one of it spoils it: it is tried again in halves. One record alone is lost.
    TooLarge {
        /// What the destination said.
        reason: String,
    },
}

impl Verdict {
    /// All of it was taken.
    pub const ACCEPTED: Verdict = Verdict::Accepted {
        rejected: 0,
        reason: None,
    };

    /// To be tried again as it is, after the usual delay.
    pub fn retry(reason: impl Into<String>) -> Verdict {
        Verdict::Retry {
            reason: reason.into(),
            after: None,
            fault: Fault::Destination,
        }
    }

    /// To be tried again, after the usual delay; but it may be that a record is at fault.
    pub fn unclear(reason: impl Into<String>) -> Verdict {
        Verdict::Retry {
            reason: reason.into(),
            after: None,
            fault: Fault::Unclear,
        }
    }

    /// What went wrong, where something did.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Verdict::Accepted { reason, .. } => reason.as_deref(),
            Verdict::Partly { reason, .. }
            | Verdict::Retry { reason, .. }
            | Verdict::Refused { reason }
            | Verdict::TooLarge { reason } => Some(reason),
        }
    }

    pub(super) fn reason_mut(&mut self) -> Option<&mut String> {
        match self {
            Verdict::Accepted { reason, .. } => reason.as_mut(),
            Verdict::Partly { reason, .. }
            | Verdict::Retry { reason, .. }
            | Verdict::Refused { reason }
            | Verdict::TooLarge { reason } => Some(reason),
        }
    }
}
