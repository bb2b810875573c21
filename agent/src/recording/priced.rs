//! What a replay costs by a configuration's prices, and who used how much in it.
//!
//! Owns: the recording's wall clock, and the ledger of a replay. Refuses: prices and sums (the core's `money` and `ledger`), and
//! tables (`usage`).

use super::RecordingHeader;
use infertap_core::ledger::{By, ContextLimits, Ledger, LedgerConfig, Report};
use infertap_core::money::GpuPrice;
use infertap_core::{Money, Nanos, Observation, PriceBook};
use std::sync::Arc;

/// What a configuration says of money and of who uses what.
#[derive(Debug, Clone, Default)]
pub struct Pricing {
    /// What tokens cost; nothing without prices.
    pub book: Arc<PriceBook>,
    /// What GPUs cost; absent where that is not known.
    pub gpu: Option<GpuPrice>,
    /// Context limits of models.
    pub limits: ContextLimits,
    /// Bounds of the sums.
    pub ledger: LedgerConfig,
}

impl Pricing {
    /// The stage behind the pipeline.
    pub(super) fn money(&self) -> Money {
        let mut money = Money::new(Arc::clone(&self.book));
        money.set_gpu_price(self.gpu);
        money
    }

    /// There is a price of anything.
    pub(super) fn is_priced(&self) -> bool {
        !self.book.is_empty() || self.gpu.is_some()
    }
}

/// Wall clock of a recording, by its header.
#[derive(Debug, Clone, Copy)]
pub(super) struct WallClock {
    monotonic: Nanos,
    unix: u64,
}

impl WallClock {
    pub(super) fn of(header: &RecordingHeader) -> WallClock {
        WallClock {
            monotonic: header.started_monotonic_ns,
            unix: header.started_unix_ns,
        }
    }

    /// Nanoseconds since 1970 at a time of the recording; what was before its start is at its start.
    pub(super) fn unix_ns(self, at: Nanos) -> u64 {
        self.unix.saturating_add(at.saturating_sub(self.monotonic))
    }
}

/// Who used how much.
#[derive(Debug)]
pub(super) struct Sums {
    by: By,
    ledger: Ledger,
    clock: WallClock,
    /// Unix seconds of the first and of the latest observation.
    span: Option<(u64, u64)>,
}

impl Sums {
    pub(super) fn new(by: By, pricing: &Pricing, header: &RecordingHeader) -> Sums {
        Sums {
            by,
            ledger: Ledger::new(&pricing.ledger, pricing.limits.clone()),
            clock: WallClock::of(header),
            span: None,
        }
    }

    /// Takes what was observed at a time of the recording.
    pub(super) fn take(&mut self, at: Nanos, observation: &Observation) {
        let now = self.clock.unix_ns(at) / 1_000_000_000;
        let (first, latest) = self.span.unwrap_or((now, now));
        let latest = latest.max(now);
        self.span = Some((first.min(now), latest));
        self.ledger.apply(latest, observation);
    }

    /// The sums of all that was taken, and how many seconds that is of.
    pub(super) fn report(&self) -> (Report, u64) {
        let (first, latest) = self.span.unwrap_or_default();
        let since = latest - first;
        (self.ledger.report(latest, since, self.by), since)
    }
}
