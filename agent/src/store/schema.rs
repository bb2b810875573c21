//! The schema, and how a file of an older one is brought up to date.
//!
//! Owns: the list of migrations, in order. Refuses: what is in the tables. A migration that was released is never
//! changed or moved: a further one follows it.

use super::tables;
use rusqlite::{Connection, TransactionBehavior};

/// One step from a schema to the next.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// What it makes, for the log.
    pub name: &'static str,
    /// SQL, run once and within a transaction.
    pub sql: &'static str,
}

/// All of them; the version of a file's schema (`user_version`) is how many of these it has seen.
pub const MIGRATIONS: &[Migration] = &[
    tables::budget::MIGRATION,
    tables::usage::MIGRATION,
    tables::record::MIGRATION,
];

/// Marks a database as ours (`application_id`).
pub(super) const APPLICATION: i64 = 0x6974_6170;

/// The version that this program knows.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) application: i64,
    pub(super) version: i64,
    /// It holds nothing at all.
    pub(super) empty: bool,
}

pub(super) fn marks(db: &Connection) -> rusqlite::Result<Marks> {
    let number = |sql| db.query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok(Marks {
        application: number("PRAGMA application_id")?,
        version: number("PRAGMA user_version")?,
        empty: number("SELECT count(*) FROM sqlite_schema")? == 0,
    })
}

/// Runs the migrations that a file has not seen; all, or none.
pub(super) fn migrate(db: &mut Connection, all: &[Migration]) -> rusqlite::Result<()> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let seen = usize::try_from(marks(&change)?.version).unwrap_or(usize::MAX);
    for migration in all.iter().skip(seen) {
        tracing::debug!("store: making {}", migration.name);
        change.execute_batch(migration.sql)?;
    }
    if seen < all.len() {
        change.pragma_update(None, "application_id", APPLICATION)?;
        change.pragma_update(None, "user_version", all.len() as i64)?;
    }
    change.commit()
}
