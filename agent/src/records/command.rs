//! `infertap requests`: the records that were kept, newest first.
//!
//! Owns: which are asked for, the table. Refuses: keeping them, and one alone (`show`).

use super::follow::follow;
use crate::cli::RequestsArgs;
use crate::clock::unix_ms;
use crate::config::Config;
use crate::print::{self, ABSENT, Table, name};
use crate::store::Reader;
use crate::store::tables::record::{self, Found, KeptRecord, Query};
use anyhow::Context as _;
use infertap_core::RequestRecord;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// How often `--follow` looks for more.
const LOOK: Duration = Duration::from_secs(1);

/// What the columns are.
const HEAD: [&str; 11] = [
    "ENDED (UTC)",
    "ID",
    "MODEL",
    "SCENE",
    "STATUS",
    "TTFT",
    "E2E",
    "IN",
    "OUT",
    "COST",
    "KEPT AS",
];

/// Prints the newest records of the store that are asked for.
///
/// # Errors
/// The store can't be read, or the output not be written.
pub fn requests_command(config: &Config, args: &RequestsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let since = args.since.map(|since| {
        let since = u128::from(unix_ms()).saturating_sub(since.duration().as_millis());
        i64::try_from(since).unwrap_or(i64::MAX)
    });
    let query = Query {
        slow: args.slow,
        errors: args.errors,
        model: args.model.clone(),
        scene: args.scene.clone(),
        engine: args.engine.clone(),
        client: args.client,
        status: args.status.clone(),
        rule: args.rule.clone(),
        trace_id: args.trace.as_ref().map(|trace| trace.to_ascii_lowercase()),
        since_ms: since,
        limit: args.limit,
    };
    let reader = reader(config)?;
    if args.follow {
        let wait = || {
            std::thread::sleep(LOOK);
            true
        };
        return follow(&reader, query, args.json, wait, out);
    }
    let found = reader.read(|db| record::newest(db, &query))?;
    warn(&found);
    if args.json {
        let answer = Answer {
            requests: &found.records,
        };
        print::json(&answer, out)?;
        return Ok(());
    }
    if found.records.is_empty() {
        writeln!(out, "No record of such a request was kept.")?;
        return Ok(());
    }
    table(&found.records, out)
}

/// What `--json` prints, as `/api/v1/requests` answers.
#[derive(Serialize)]
struct Answer<'a> {
    requests: &'a [KeptRecord],
}

/// The store of the configuration.
pub(super) fn reader(config: &Config) -> anyhow::Result<Reader> {
    let file = config
        .store
        .file()
        .context("store.path is empty: no records are kept")?;
    Ok(Reader::open(file)?)
}

/// Says what can't be shown.
pub(super) fn warn(found: &Found) {
    if found.unreadable > 0 {
        eprintln!(
            "{} more can't be read: another version of infertap wrote them, or the file is damaged.",
            found.unreadable
        );
    }
}

fn table(records: &[KeptRecord], out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = Table::new(5, &HEAD).text_from(10);
    for kept in records {
        let record = &kept.record;
        let number = |count: Option<u64>| count.map_or_else(|| ABSENT.to_owned(), |count| count.to_string());
        table.row(vec![
            utc(kept.ended_unix_ms),
            name(&record.id),
            name(&record.model),
            name(&record.scene),
            record.status.as_str().to_owned(),
            optional(record.ttft_s),
            optional(record.e2e_s),
            number(record.input_tokens),
            number(record.output_tokens),
            cost(record),
            name(&kept.rules.join(",")),
        ]);
    }
    table.print(out)?;
    Ok(())
}

/// What its tokens cost.
pub(super) fn cost(record: &RequestRecord) -> String {
    record.cost.as_ref().map_or_else(
        || ABSENT.to_owned(),
        |cost| format!("{} {}", cost.total, cost.currency.as_str()),
    )
}

/// A wall-clock time, UTC, to the second.
pub(super) fn utc(unix_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(unix_ms).map_or_else(
        |_| "-".to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// A duration with three digits that count, or `-` where it is not known.
pub(super) fn optional(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), duration)
}

/// As [`optional`].
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 10.0 => format!("{s:.1} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.1 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.01 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.2} ms", s * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_that_count() {
        let all = [1234.5, 99.96, 12.34, 1.234, 0.1234, 0.0123, 0.001_234, 0.0];
        let told = all.map(duration);
        let expected = [
            "1234 s", "100.0 s", "12.3 s", "1.23 s", "123 ms", "12.3 ms", "1.23 ms", "0.00 ms",
        ];
        assert_eq!(told, expected);
    }
}
