//! The last time as trace-event JSON: what the exporter knows of it, put together.
//!
//! Owns: which engines and GPUs are in it, what is said of them, and the limit on the answer. Refuses: drawing (the core's
//! `chrome_trace`).

use super::Exporter;
use super::recent::Since;
use crate::clock::{monotonic_ns, unix_ms};
use infertap_core::chrome_trace::{self, Moment, TooLarge};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an answer; somewhat less than `infertap trace` takes.
const LIMIT: usize = 48 << 20;

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// Nobody knows this engine.
    #[error("no engine {0} is up, and none ended a request lately; /api/v1/engines lists those that are up")]
    NoEngine(String),
    /// Too much of it.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl Exporter {
    /// What ended within the last `since`: of one engine and the GPUs that it is on, or of all.
    pub(crate) fn trace(&self, since: Duration, engine: Option<&str>) -> Result<Vec<u8>, TraceError> {
        let to = monotonic_ns();
        let from = to.saturating_sub(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        let engines = self.engines();
        let gateways = self.gateways();
        let infos = || engines.iter().map(|engine| &engine.info).chain(&gateways);
        let pids = infos().map(|info| (Arc::clone(&info.id), info.pid)).collect();
        let mut labels: BTreeMap<Arc<str>, String> = BTreeMap::new();
        for info in infos() {
            let words = [
                Some(info.kind.as_str()),
                info.version.as_deref(),
                info.model.as_deref(),
            ];
            let words: Vec<&str> = words.into_iter().flatten().collect();
            labels.insert(Arc::clone(&info.id), words.join(" "));
        }
        for gpu in &self.gpus().view.gpus {
            let words = [gpu.name.as_deref(), Some(&*gpu.uuid)];
            let words: Vec<&str> = words.into_iter().flatten().collect();
            labels.insert(Arc::clone(&gpu.gpu), words.join(" "));
        }
        let Since {
            requests,
            by_gateway,
            forgotten: requests_forgotten,
        } = self.recent.since(from, engine);
        let known = engines.iter().find(|status| Some(&*status.info.id) == engine);
        if let Some(engine) = engine
            && known.is_none()
            && requests.is_empty()
        {
            return Err(TraceError::NoEngine(engine.to_owned()));
        }
        let up: BTreeSet<&str> = engines.iter().map(|engine| &*engine.info.id).collect();
        let on: BTreeSet<&str> = known
            .iter()
            .flat_map(|known| &known.gpus)
            .map(|gpu| &**gpu)
            .collect();
        // Requests are drawn whole, and what engines and GPUs did meanwhile belongs to them.
        let begun = requests.iter().filter_map(|request| request.record.t0_ns).min();
        let earliest = begun.map_or(from, |begun| begun.min(from));
        let (moments, moments_forgotten) = self.history.since(earliest, |moment| match (moment, engine) {
            // A load holds no longer than its engine.
            (Moment::Load { engine: of, .. }, None) => up.contains(&**of),
            (_, None) => true,
            (Moment::Gpu(gpu), Some(_)) => on.contains(&*gpu.gpu),
            (_, Some(engine)) => moment.engine().is_some_and(|of| &**of == engine),
        });
        let history = chrome_trace::History {
            from,
            to,
            requests: requests.iter().map(|request| &request.record).collect(),
            gateways: by_gateway
                .iter()
                .filter_map(|request| Some((&request.record, request.gateway.as_ref()?)))
                .collect(),
            moments: moments.iter().collect(),
            requests_from: requests_forgotten,
            moments_from: moments_forgotten,
            labels,
            pids,
            unix_us_at_zero: unix_us_at_zero(to),
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok(history.encode(LIMIT)?)
    }
}

/// Absent on a host whose clock is before 1970, or far from now.
fn unix_us_at_zero(monotonic: u64) -> Option<i64> {
    let unix_us = i64::try_from(unix_ms().checked_mul(1000)?).ok()?;
    (unix_us > 0).then(|| unix_us.saturating_sub((monotonic / 1000) as i64))
}
