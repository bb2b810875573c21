//! `budget_usage` and `budget_hour`: how much of each budget is used, by period and by hour.
//!
//! Owns: these tables. Refuses: what a budget is (the core's `budget`). Rows hold totals, not additions, so that writing one
//! twice counts nothing twice.

use crate::store::{Migration, Write};
use infertap_core::budget::Kept;
use rusqlite::{Connection, params};

/// The tables.
pub const MIGRATION: Migration = Migration {
    name: "budget_usage",
    sql: "
        CREATE TABLE budget_usage (
            budget  TEXT    NOT NULL, -- its name
            measure TEXT    NOT NULL, -- what it measures; another measure is another usage
            start   INTEGER NOT NULL, -- first second of the period, Unix time
            since   INTEGER NOT NULL, -- when this measure was first taken, in whatever period
            used    REAL    NOT NULL, -- in the unit of the measure
            told    REAL    NOT NULL, -- highest threshold that was told, 0 for none
            exhausted INTEGER,        -- when the limit was reached
            limited REAL    NOT NULL, -- the limit for which these two hold
            PRIMARY KEY (budget, measure, start)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE budget_hour (
            budget  TEXT    NOT NULL,
            measure TEXT    NOT NULL,
            hour    INTEGER NOT NULL, -- first second of the hour, Unix time
            used    REAL    NOT NULL, -- within this hour
            PRIMARY KEY (budget, measure, hour)
        ) STRICT, WITHOUT ROWID;",
};

/// Hours that are kept.
const HOURS: i64 = 48;
/// Periods older than this many seconds are dropped: longer than two of the longest.
const PERIODS: i64 = 70 * 86_400;

/// Totals to be written together.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals(pub Vec<Kept>);

impl Write for Totals {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let mut total = db.prepare_cached(
            "INSERT INTO budget_usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT DO UPDATE SET since = excluded.since, used = excluded.used, told = excluded.told,
                 exhausted = excluded.exhausted, limited = excluded.limited",
        )?;
        let mut hour = db.prepare_cached(
            "INSERT INTO budget_hour VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET used = excluded.used",
        )?;
        for kept in &self.0 {
            let Kept { budget, measure, .. } = kept;
            total.execute(params![
                budget,
                measure,
                kept.start,
                kept.since,
                kept.used,
                kept.told,
                kept.exhausted,
                kept.limit
            ])?;
            for (start, used) in &kept.hours {
                hour.execute(params![budget, measure, start, used])?;
            }
        }
        Ok(())
    }
}

/// Drops what no projection and no period needs any more.
#[derive(Debug, Clone, Copy)]
pub struct Forget {
    /// Unix time now.
    pub now: i64,
}

impl Write for Forget {
    fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        db.prepare_cached("DELETE FROM budget_usage WHERE start < ?1")?
            .execute([self.now.saturating_sub(PERIODS)])?;
        db.prepare_cached("DELETE FROM budget_hour WHERE hour < ?1")?
            .execute([self.now.saturating_sub(HOURS * 3600)])?;
        Ok(())
    }
}

/// Everything that is kept, periods in order; each with the hours of its measure that are not over for longer than two days.
///
/// # Errors
/// The file can't be read.
pub fn read(db: &Connection) -> rusqlite::Result<Vec<Kept>> {
    let mut hours =
        db.prepare("SELECT hour, used FROM budget_hour WHERE budget = ?1 AND measure = ?2 ORDER BY hour")?;
    let mut usages = db.prepare(
        "SELECT budget, measure, start, since, used, told, exhausted, limited FROM budget_usage ORDER BY budget, measure, start",
    )?;
    let rows = usages.query_map([], |row| {
        Ok(Kept {
            budget: row.get(0)?,
            measure: row.get(1)?,
            start: row.get(2)?,
            since: row.get(3)?,
            used: row.get(4)?,
            told: row.get(5)?,
            exhausted: row.get(6)?,
            limit: row.get(7)?,
            hours: Vec::new(),
        })
    })?;
    rows.map(|usage| {
        let mut usage = usage?;
        let all = hours.query_map([&usage.budget, &usage.measure], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        usage.hours = all.collect::<rusqlite::Result<_>>()?;
        Ok(usage)
    })
    .collect()
}
