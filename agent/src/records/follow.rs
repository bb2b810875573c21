//! `infertap requests --follow`: records as they are kept.
//!
//! Owns: which were shown already. Refuses: which are asked for, and the table of those that are there (`command`).

use super::command::{cost, optional, utc, warn};
use crate::print::{known, name};
use crate::store::Reader;
use crate::store::tables::record::{self, KeptRecord, Query};
use std::collections::{HashSet, VecDeque};
use std::io::Write;

/// How far back it is looked for records that came late, milliseconds: a row is there some tenths of a second after its request
/// ended, and a clock may be set a little.
const LATE_MS: i64 = 30_000;
/// Records shown at one look, and ids remembered as shown.
const MOST: usize = 10_000;

/// Prints what is there, the oldest first, then what comes, until `wait` says that it is enough.
///
/// # Errors
/// The store can't be read, or the output not be written.
pub(super) fn follow(
    reader: &Reader,
    mut query: Query,
    json: bool,
    mut wait: impl FnMut() -> bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut shown = HashSet::new();
    let mut order = VecDeque::new();
    loop {
        let found = reader.read(|db| record::newest(db, &query))?;
        if shown.is_empty() {
            warn(&found);
        }
        let newest = found.records.first().map(|kept| kept.ended_unix_ms);
        for kept in found.records.iter().rev() {
            if !shown.insert(kept.record.id.clone()) {
                continue;
            }
            order.push_back(kept.record.id.clone());
            if order.len() > MOST
                && let Some(oldest) = order.pop_front()
            {
                shown.remove(&oldest);
            }
            if json {
                serde_json::to_writer(&mut *out, kept)?;
                writeln!(out)?;
            } else {
                writeln!(out, "{}", line(kept))?;
            }
        }
        out.flush()?;
        // What is older than the first look's oldest was not asked for.
        let oldest = found
            .records
            .last()
            .filter(|_| found.records.len() >= query.limit);
        query.since_ms = newest
            .map(|newest| newest.saturating_sub(LATE_MS))
            .max(oldest.map(|kept| kept.ended_unix_ms))
            .max(query.since_ms);
        query.limit = MOST;
        if !wait() {
            return Ok(());
        }
    }
}

/// One record in one line.
fn line(kept: &KeptRecord) -> String {
    let record = &kept.record;
    format!(
        "{}  {}  {}  {}  {:<12}  TTFT {:>7}  e2e {:>7}  {} in, {} out  {}  {}",
        utc(kept.ended_unix_ms),
        name(&record.id),
        name(&record.model),
        name(&record.scene),
        record.status.as_str(),
        optional(record.ttft_s),
        optional(record.e2e_s),
        known(record.input_tokens),
        known(record.output_tokens),
        cost(record),
        name(&kept.rules.join(",")),
    )
}
