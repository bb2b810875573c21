//! `request_record`: requests that were worth keeping.
//!
//! Owns: this table, and how long rows stay. Refuses: which requests these are (the core's `sampling`).

use crate::content::KeptContent;
use crate::records::GpuDuring;
use crate::store::{Migration, Write};
use infertap_core::client::Network;
use infertap_core::gateway::{GatewayPart, Joined};
use infertap_core::{Nanos, RequestRecord};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

/// The table.
pub const MIGRATION: Migration = Migration {
    name: "request_record",
    sql: "
        CREATE TABLE request_record (
            id          TEXT    NOT NULL UNIQUE, -- ours
            trace_id    TEXT    NOT NULL,
            response_id TEXT,                    -- the response's own
            ended       INTEGER NOT NULL,        -- Unix time, milliseconds
            model       TEXT    NOT NULL,
            scene       TEXT    NOT NULL,
            status      TEXT    NOT NULL,
            rules       TEXT    NOT NULL,        -- that it is kept by, with commas between
            energy      REAL,                    -- joules; known some seconds after the end
            body        BLOB    NOT NULL         -- all of it: JSON, compressed with zstd
        ) STRICT;
        CREATE INDEX request_record_ended ON request_record (ended);
        CREATE INDEX request_record_trace ON request_record (trace_id);
        CREATE INDEX request_record_response ON request_record (response_id);",
};

/// Largest JSON of a row.
const MAX_JSON: usize = 16 << 20;
/// Fewest digits of an id that stand for it.
const PREFIX: usize = 4;

/// A record with what is known beside it, as `infertap show --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptRecord {
    /// The record.
    #[serde(flatten)]
    pub record: RequestRecord,
    /// When it ended, Unix time in milliseconds.
    pub ended_unix_ms: i64,
    /// Why it was kept.
    pub rules: Vec<String>,
    /// The token that the first gap follows; absent where the gaps are of several choices.
    pub token_gaps_from_ns: Option<Nanos>,
    /// Gaps between tokens: seconds, and how many tokens share them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub token_gaps: Vec<(f64, u32)>,
    /// What it and its answer said, where that is to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<KeptContent>,
    /// What the GPUs of its engine were like while it ran; known some seconds after its end, and empty where nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu: Vec<GpuDuring>,
    /// The gateway that it came by way of, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayPart>,
}

impl KeptRecord {
    /// Takes over the gateway's part, and the gateway's trace where the request's own headers named none.
    pub fn join(&mut self, joined: &Joined) {
        self.gateway = Some(joined.part.clone());
        joined.name_trace(&mut self.record);
    }

    /// As it is in its row.
    fn body(&self) -> rusqlite::Result<Vec<u8>> {
        let other = rusqlite::Error::ToSqlConversionFailure;
        let json = serde_json::to_vec(self).map_err(|error| other(error.into()))?;
        zstd::bulk::compress(&json, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(|error| other(error.into()))
    }

    /// Bytes of memory that it takes, about: what queues are bounded by.
    pub fn bytes(&self) -> usize {
        let record = &self.record;
        let text = [&record.id, &record.trace_id, &record.protocol]
            .into_iter()
            .chain(&record.parent_span_id)
            .chain(&record.response_id)
            .chain(&record.finish_reason)
            .chain(&record.incomplete)
            .chain(&self.rules);
        let blamed = record
            .diagnosis
            .iter()
            .flat_map(|diagnosis| &diagnosis.interference_by);
        size_of::<KeptRecord>()
            + text.map(|text| text.len() + size_of::<String>()).sum::<usize>()
            + blamed.map(|_| 128).sum::<usize>()
            + self.token_gaps.len() * size_of::<(f64, u32)>()
            + self.content.as_ref().map_or(0, KeptContent::bytes)
            + self.gpu.len() * (size_of::<GpuDuring>() + 64)
    }
}

impl Write for KeptRecord {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let body = self.body()?;
        let record = &self.record;
        db.prepare_cached(
            "INSERT OR REPLACE INTO request_record VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            record.id,
            record.trace_id,
            record.response_id,
            self.ended_unix_ms,
            &*record.model,
            &*record.scene,
            record.status.as_str(),
            self.rules.join(","),
            record.energy_j,
            body,
        ])?;
        Ok(())
    }
}

/// All energy of a request that was kept is known now.
#[derive(Debug, Clone, PartialEq)]
pub struct Energy {
    /// The request.
    pub id: String,
    /// Joules.
    pub joules: f64,
}

impl Write for Energy {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        db.prepare_cached("UPDATE request_record SET energy = ?2 WHERE id = ?1")?
            .execute(params![self.id, self.joules])?;
        Ok(())
    }
}

/// More is known of a request that was kept.
pub struct Amend {
    /// The request. One that is not there (any more) stays away.
    pub id: String,
    /// Adds it.
    pub change: Box<dyn Fn(&mut KeptRecord) + Send>,
}

impl Write for Amend {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let row = db
            .prepare_cached("SELECT body, energy FROM request_record WHERE id = ?1")?
            .query_row([&self.id], read)
            .optional()?;
        if let Some(mut kept) = row.flatten() {
            (self.change)(&mut kept);
            db.prepare_cached("UPDATE request_record SET body = ?2, trace_id = ?3 WHERE id = ?1")?
                .execute(params![self.id, kept.body()?, kept.record.trace_id])?;
        }
        Ok(())
    }
}

/// Drops what is too old, then the oldest of what is too much, and gives the space back.
#[derive(Debug, Clone, Copy)]
pub struct Retain {
    /// Requests that ended before are dropped; Unix time, milliseconds.
    pub since_ms: i64,
    /// Bytes that the file may have.
    pub bytes: u64,
}

impl Write for Retain {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        db.prepare_cached("DELETE FROM request_record WHERE ended < ?1")?
            .execute([self.since_ms])?;
        loop {
            let used = used_bytes(db)?;
            let rows: i64 = db.query_row("SELECT count(*) FROM request_record", [], |row| row.get(0))?;
            if used <= self.bytes || rows == 0 {
                break;
            }
            // So many of the oldest as their share is, and a little more: the next minute has room then.
            let share = (used - self.bytes) as f64 / used as f64 + 0.02;
            let drop = ((rows as f64 * share).ceil() as i64).clamp(1, rows);
            db.prepare_cached(
                "DELETE FROM request_record WHERE rowid IN
                 (SELECT rowid FROM request_record ORDER BY ended, rowid LIMIT ?1)",
            )?
            .execute([drop])?;
        }
        db.prepare_cached("PRAGMA incremental_vacuum")?
            .query_map([], |_| Ok(()))?
            .collect()
    }
}

/// Bytes of the pages that hold something.
fn used_bytes(db: &Connection) -> rusqlite::Result<u64> {
    let number = |sql| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    let pages = number("PRAGMA page_count")? - number("PRAGMA freelist_count")?;
    Ok(u64::try_from(pages * number("PRAGMA page_size")?).unwrap_or(0))
}

/// Which records are asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Query {
    /// Those kept as slow. With `errors`: either.
    pub slow: bool,
    /// Those that failed or were refused.
    pub errors: bool,
    /// Of this model.
    pub model: Option<String>,
    /// Of this scene.
    pub scene: Option<String>,
    /// Served by this engine.
    pub engine: Option<String>,
    /// Sent from this network.
    pub client: Option<Network>,
    /// With this outcome.
    pub status: Option<String>,
    /// Kept by this rule, beside others or not.
    pub rule: Option<String>,
    /// Of this trace.
    pub trace_id: Option<String>,
    /// Ended since; Unix time, milliseconds.
    pub since_ms: Option<i64>,
    /// At most so many.
    pub limit: usize,
}

impl Query {
    /// What the columns of the table don't tell.
    fn admits(&self, record: &RequestRecord) -> bool {
        let engine = self.engine.as_ref();
        let client = self.client.as_ref();
        engine.is_none_or(|engine| **engine == *record.engine)
            && client.is_none_or(|network| record.client.is_some_and(|client| network.contains(client)))
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// Newest first.
    pub records: Vec<KeptRecord>,
    /// Rows that can't be read: another version of this program wrote them, or the file is damaged.
    pub unreadable: u64,
}

const COLUMNS: &str = "SELECT body, energy FROM request_record";

/// The newest records that are asked for, without the gaps between their tokens and without content.
///
/// # Errors
/// The file can't be read.
pub fn newest(db: &Connection, query: &Query) -> rusqlite::Result<Found> {
    let mut rows = db.prepare(&format!(
        "{COLUMNS} WHERE (?1 IS NULL OR ended >= ?1) AND (?2 IS NULL OR model = ?2) AND (?3 IS NULL OR scene = ?3)
            AND ((NOT ?4 AND NOT ?5) OR (?4 AND instr(rules, 'slow_') > 0)
                OR (?5 AND status IN ('client_error', 'server_error', 'timeout')))
            AND (?6 IS NULL OR status = ?6) AND (?7 IS NULL OR trace_id = ?7)
            AND (?8 IS NULL OR instr(',' || rules || ',', ',' || ?8 || ',') > 0)
         ORDER BY ended DESC, rowid DESC"
    ))?;
    let asked = params![
        query.since_ms,
        query.model,
        query.scene,
        query.slow,
        query.errors,
        query.status,
        query.trace_id,
        query.rule,
    ];
    let admitted = |row: &rusqlite::Result<Option<KeptRecord>>| !matches!(row, Ok(Some(kept)) if !query.admits(&kept.record));
    // Row by row: all of them together may be large.
    let light = |row: rusqlite::Result<Option<KeptRecord>>| {
        row.map(|kept| {
            kept.map(|kept| KeptRecord {
                token_gaps: Vec::new(),
                content: None,
                ..kept
            })
        })
    };
    let admitted = rows.query_map(asked, read)?.filter(admitted);
    collect(admitted.take(query.limit).map(light))
}

/// The newest records that ended since, at most `most`, each as it is read, until one says that it is enough. Rows that can't
/// be read are left out.
///
/// # Errors
/// The file can't be read.
pub fn each_since(
    db: &Connection,
    since_ms: i64,
    most: u32,
    each: &mut dyn FnMut(&KeptRecord) -> ControlFlow<()>,
) -> rusqlite::Result<()> {
    let sql = format!("{COLUMNS} WHERE ended >= ?1 ORDER BY ended DESC, rowid DESC LIMIT ?2");
    for row in db.prepare(&sql)?.query_map(params![since_ms, most], read)? {
        if let Some(kept) = row?
            && each(&kept).is_break()
        {
            break;
        }
    }
    Ok(())
}

/// The records that a name may stand for: an id or its first digits, else a trace id, else a response's id. At most ten.
///
/// # Errors
/// The file can't be read.
pub fn named(db: &Connection, name: &str) -> rusqlite::Result<Found> {
    let ways = [
        "id = ?1",
        "trace_id = ?1",
        "response_id = ?1",
        "substr(id, 1, length(?1)) = ?1",
    ];
    for way in ways {
        if way.starts_with("substr") && name.len() < PREFIX {
            continue;
        }
        let sql = format!("{COLUMNS} WHERE {way} ORDER BY ended DESC, rowid DESC LIMIT 10");
        let found = collect(db.prepare(&sql)?.query_map([name], read)?)?;
        if found != Found::default() {
            return Ok(found);
        }
    }
    Ok(Found::default())
}

/// A row, where it can be read.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<KeptRecord>> {
    let body = row.get_ref(0)?.as_blob().unwrap_or_default();
    let kept = zstd::bulk::decompress(body, MAX_JSON)
        .ok()
        .and_then(|json| serde_json::from_slice::<KeptRecord>(&json).ok());
    let energy: Option<f64> = row.get(1)?;
    Ok(kept.map(|mut kept| {
        kept.record.energy_j = energy;
        kept
    }))
}

fn collect(rows: impl Iterator<Item = rusqlite::Result<Option<KeptRecord>>>) -> rusqlite::Result<Found> {
    let mut found = Found::default();
    for row in rows {
        match row? {
            Some(record) => found.records.push(record),
            None => found.unreadable += 1,
        }
    }
    Ok(found)
}
