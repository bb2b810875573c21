//! `usage`: who used how much, by 15 minutes and by days.
//!
//! Owns: this table. Refuses: what usage is (the core's `ledger`). Rows hold sums so far, not additions, so that writing one
//! twice counts nothing twice.

use crate::store::{Migration, Write};
use infertap_core::ledger::{BUCKET, DAY, HOURS, Key, Row, Spent, Usage};
use rusqlite::{Connection, params};
use std::sync::Arc;

/// The table.
pub const MIGRATION: Migration = Migration {
    name: "usage",
    sql: "
        CREATE TABLE usage (
            width       INTEGER NOT NULL, -- seconds of the span: 900 or 86400
            start       INTEGER NOT NULL, -- its first second, Unix time
            model       TEXT    NOT NULL,
            scene       TEXT    NOT NULL,
            client      TEXT    NOT NULL, -- '' where it is not known
            requests    INTEGER NOT NULL,
            failed      INTEGER NOT NULL,
            input       INTEGER NOT NULL, -- tokens, as all that follow
            output      INTEGER NOT NULL,
            cached      INTEGER,          -- absent where no request told, as all that follow
            reasoning   INTEGER,
            near        INTEGER,          -- requests near the context limit
            cost        TEXT    NOT NULL, -- JSON, by currency and basis
            PRIMARY KEY (width, start, model, scene, client)
        ) STRICT, WITHOUT ROWID;",
};

/// Most rows that are read back: as many as a ledger with the largest bounds holds, and more than any has in use.
const MAX_ROWS: i64 = 2_000_000;

/// What has changed: the sums so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed(pub Vec<Row>);

impl Write for Changed {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let mut upsert = db.prepare_cached(
            "INSERT OR REPLACE INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        for row in &self.0 {
            let (key, usage) = (&row.key, &row.usage);
            let known = |number: Option<u64>| number.map(integer);
            upsert.execute(params![
                integer(row.width),
                integer(row.start),
                &*key.model,
                &*key.scene,
                key.client.as_deref().unwrap_or_default(),
                integer(usage.requests),
                integer(usage.failed),
                integer(usage.input_tokens),
                integer(usage.output_tokens),
                known(usage.cached_input_tokens),
                known(usage.reasoning_tokens),
                known(usage.near_context_limit),
                serde_json::to_string(&usage.cost).unwrap_or_else(|_| "[]".to_owned()),
            ])?;
        }
        Ok(())
    }
}

/// SQLite's integers are signed.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Drops what is older than it is to be kept.
#[derive(Debug, Clone, Copy)]
pub struct Forget {
    /// Unix time now.
    pub now: u64,
    /// Days that are kept.
    pub days: u64,
}

impl Write for Forget {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let mut forget = db.prepare_cached("DELETE FROM usage WHERE width = ?1 AND start < ?2")?;
        for (width, kept) in [(BUCKET, HOURS), (DAY, self.days.saturating_mul(DAY))] {
            let oldest = self.now.saturating_sub(kept);
            forget.execute(params![integer(width), integer(oldest - oldest % width)])?;
        }
        Ok(())
    }
}

/// What is kept at the unix time `now`: spans of 15 minutes of the last two days, and so many days.
///
/// # Errors
/// The file can't be read.
pub fn read(db: &Connection, now: u64, days: u64) -> rusqlite::Result<Vec<Row>> {
    let mut rows = db.prepare(
        "SELECT width, start, model, scene, client, requests, failed, input, output, cached, reasoning, near, cost
         FROM usage WHERE (width = ?1 AND start > ?2) OR (width = ?3 AND start > ?4)
         ORDER BY start DESC LIMIT ?5",
    )?;
    let since = |kept: u64| integer(now.saturating_sub(kept));
    let read = rows.query_map(
        params![
            integer(BUCKET),
            since(HOURS),
            integer(DAY),
            since(days.saturating_mul(DAY)),
            MAX_ROWS
        ],
        |row| {
            let number = |at: usize| -> rusqlite::Result<u64> { Ok(natural(row.get(at)?)) };
            let known = |at: usize| -> rusqlite::Result<Option<u64>> {
                Ok(row.get::<_, Option<i64>>(at)?.map(natural))
            };
            let text = |at: usize| -> rusqlite::Result<Arc<str>> { row.get::<_, String>(at).map(Arc::from) };
            let client = text(4)?;
            let cost: Vec<Spent> = serde_json::from_str(&row.get::<_, String>(12)?).unwrap_or_default();
            let mut usage = Usage {
                requests: number(5)?,
                failed: number(6)?,
                input_tokens: number(7)?,
                output_tokens: number(8)?,
                cached_input_tokens: known(9)?,
                reasoning_tokens: known(10)?,
                near_context_limit: known(11)?,
                cost: Vec::new(),
            };
            for spent in &cost {
                usage.spend(spent);
            }
            Ok(Row {
                width: number(0)?,
                start: number(1)?,
                key: Key {
                    model: text(2)?,
                    scene: text(3)?,
                    client: (!client.is_empty()).then_some(client),
                },
                usage,
            })
        },
    )?;
    read.collect()
}

fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
