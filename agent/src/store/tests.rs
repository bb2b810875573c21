//! The store as a whole: what it keeps, what it refuses to open, and what a failing disk does.

use super::tables::budget::{self, Forget, Totals};
use super::*;
use infertap_core::budget::Kept;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;

const SOON: Duration = Duration::from_secs(20);

fn quiet() -> Trouble {
    Box::new(|_| {})
}

fn usage(budget: &str, start: i64, used: f64) -> Kept {
    Kept {
        budget: budget.to_owned(),
        measure: "tokens".to_owned(),
        start,
        since: start - 7,
        used,
        told: 0.8,
        exhausted: Some(start),
        limit: 100.0,
        hours: vec![(start, used)],
    }
}

fn totals(budget: &str, start: i64, used: f64) -> Totals {
    Totals(vec![usage(budget, start, used)])
}

fn kept(path: &Path) -> Vec<Kept> {
    Reader::open(path)
        .expect("opens")
        .read(budget::read)
        .expect("reads")
}

/// Runs SQL on a file that no store has open.
fn change(path: &Path, sql: &str) {
    let db = Connection::open(path).expect("opens");
    db.execute_batch(sql).expect("runs");
}

fn refused(path: &Path) -> String {
    let error = Store::open(path, quiet()).expect_err("refused");
    error.to_string()
}

#[test]
fn totals_are_kept_and_writing_them_twice_counts_nothing_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a/b/store.db");
    let store = Store::open(&path, quiet()).expect("opens");
    for used in [1.0, 2.5, 2.5] {
        assert!(store.submit(totals("b", 3600, used)));
    }
    assert!(store.submit(totals("a", 0, 7.0)));
    assert!(store.flush(SOON));
    assert_eq!(store.status().written(), 4);
    assert!(store.status().up() && store.status().lost() == 0);
    assert!(store.status().bytes().expect("a size") > 4096);
    let expected = [usage("a", 0, 7.0), usage("b", 3600, 2.5)];
    assert_eq!(kept(&path), expected, "beside the writer");
    assert_eq!(store.read(budget::read).expect("reads"), expected);
    drop(store);
    assert_eq!(kept(&path), expected, "after it");
    let mode = |path: &Path| std::fs::metadata(path).expect("facts").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().expect("a folder")), 0o700);

    let store = Store::open(&path, quiet()).expect("opens again");
    store.submit(Forget { now: 71 * 86_400 });
    store.submit(totals("c", 71 * 86_400, 1.0));
    assert!(store.flush(SOON));
    assert_eq!(kept(&path), [usage("c", 71 * 86_400, 1.0)], "the others are over");
}

#[test]
fn what_fails_alone_is_lost_alone() {
    struct Wrong;
    impl Write for Wrong {
        fn write(&self, db: &Connection) -> rusqlite::Result<()> {
            db.execute("INSERT INTO budget_hour VALUES ('x', 'y', 0, 1)", [])?;
            db.execute("INSERT INTO budget_hour VALUES ('x', 'y', 0, 1)", [])
                .map(drop)
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Store::open(&path, quiet()).expect("opens");
    store.submit(totals("a", 0, 1.0));
    store.submit(Wrong);
    store.submit(totals("b", 0, 1.0));
    assert!(store.flush(SOON));
    assert_eq!(kept(&path), [usage("a", 0, 1.0), usage("b", 0, 1.0)]);
    let status = store.status();
    assert_eq!((status.written(), status.lost_for(Loss::Failed)), (2, 1));
    assert!(status.up(), "the file is not to blame");
}

#[test]
fn two_agents_do_not_share_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let first = Store::open(&path, quiet()).expect("opens");
    assert!(refused(&path).contains("in use by another agent"));
    drop(first);
    Store::open(&path, quiet()).expect("opens, now that the first is closed");
}

#[test]
fn what_cannot_be_opened_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);

    let absent = Reader::open(&path("absent.db")).expect_err("absent").to_string();
    assert!(absent.contains("`infertap run` makes it"), "{absent}");

    Store::open(&path("newer.db"), quiet()).map(drop).expect("opens");
    change(&path("newer.db"), "PRAGMA user_version = 1000");
    let newer = refused(&path("newer.db"));
    assert!(
        newer.contains("schema 1000") && newer.contains("upgrade, or move the file away"),
        "{newer}"
    );

    Store::open(&path("older.db"), quiet()).map(drop).expect("opens");
    change(&path("older.db"), "PRAGMA user_version = 0");
    let older = Reader::open(&path("older.db")).expect_err("older").to_string();
    assert!(older.contains("brings it up to date"), "{older}");

    change(&path("foreign.db"), "CREATE TABLE songs (name TEXT)");
    assert!(refused(&path("foreign.db")).contains("of another program"));

    std::fs::write(
        path("text.db"),
        "no database at all, but long enough to have a header of its own. ".repeat(4),
    )
    .expect("writes");
    let text = refused(&path("text.db"));
    assert!(
        text.contains("is damaged") && text.contains("move it away"),
        "{text}"
    );

    std::fs::write(path("file"), "").expect("writes");
    let folder_is_file = refused(&path("file/store.db"));
    assert!(
        folder_is_file.contains("name another file with store.path"),
        "{folder_is_file}"
    );
}

#[test]
fn damage_is_found_and_a_torn_log_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Store::open(&path, quiet()).expect("opens");
    for n in 0..2000 {
        store.submit(totals(&format!("budget {n}"), 0, f64::from(n)));
    }
    assert!(store.flush(SOON));
    // What a killed agent leaves: the database without the last checkpoint, and its log.
    let left = folder.path().join("left.db");
    std::fs::copy(&path, &left).expect("copies");
    let log = std::fs::read(open::beside(&path, "-wal")).expect("a log");
    drop(store);
    for keep in [0, 1, 31, 4000, log.len() / 2, log.len() - 1, log.len()] {
        let torn = folder.path().join(format!("torn-{keep}.db"));
        std::fs::copy(&left, &torn).expect("copies");
        std::fs::write(open::beside(&torn, "-wal"), &log[..keep]).expect("writes");
        let store = Store::open(&torn, quiet()).expect("opens");
        let rows = store.read(budget::read).expect("reads");
        assert!(
            rows.iter()
                .all(|row| row.budget == format!("budget {}", row.used)),
            "rows are whole"
        );
        if keep == log.len() {
            assert_eq!(rows.len(), 2000);
        }
    }
    // A page in the middle is overwritten.
    let mut bytes = std::fs::read(&path).expect("reads");
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0x5a);
    std::fs::write(&path, bytes).expect("writes");
    let damaged = refused(&path);
    assert!(damaged.contains("is damaged"), "{damaged}");
}

#[test]
fn a_file_that_is_moved_away_is_made_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = Store::open(&path, quiet()).expect("opens");
    store.submit(totals("a", 0, 1.0));
    assert!(store.flush(SOON));
    for suffix in ["", "-wal", "-shm"] {
        let file = open::beside(&path, suffix);
        std::fs::rename(&file, open::beside(&file, ".old")).expect("moves");
    }
    store.submit(totals("b", 0, 1.0));
    assert!(store.flush(SOON));
    assert_eq!(kept(&path), [usage("b", 0, 1.0)]);
}

#[test]
fn a_file_that_fails_stops_the_store_with_one_word() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let told: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let trouble = {
        let told = Arc::clone(&told);
        Box::new(move |sentence| told.lock().expect("sound").push(sentence))
    };
    let store = Store::open(&path, trouble).expect("opens");
    // In place of the database, what cannot be opened.
    std::fs::remove_file(&path).expect("removes");
    std::fs::create_dir(&path).expect("makes");
    let start = Instant::now();
    for n in 0..3 {
        store.submit(totals("a", n, 1.0));
        assert!(store.flush(SOON), "it answers");
    }
    assert!(!store.status().up());
    assert_eq!(store.status().lost_for(Loss::Failed), 3);
    let told = told.lock().expect("sound");
    assert!(start.elapsed() > writer::RETRY || told.len() == 1, "{told:?}");
    assert!(
        told[0]
            .as_deref()
            .is_some_and(|told| told.contains("nothing is kept")),
        "{told:?}"
    );
}

#[test]
fn migrations_are_run_once_and_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let step = |sql| Migration { name: "step", sql };
    let all = [
        step("CREATE TABLE a (x INTEGER)"),
        step("INSERT INTO a VALUES (1)"),
        step("INSERT INTO a SELECT x + 1 FROM a"),
    ];
    let mut db = Connection::open(&path).expect("opens");
    let rows = |db: &Connection| -> Vec<i64> {
        let mut rows = db.prepare("SELECT x FROM a ORDER BY x").expect("prepares");
        let rows = rows.query_map([], |row| row.get(0)).expect("reads");
        rows.collect::<rusqlite::Result<_>>().expect("reads")
    };
    schema::migrate(&mut db, &all[..2]).expect("runs");
    assert_eq!(rows(&db), [1]);
    schema::migrate(&mut db, &all).expect("runs");
    assert_eq!(rows(&db), [1, 2]);
    schema::migrate(&mut db, &all).expect("runs");
    assert_eq!(rows(&db), [1, 2]);
    let mut broken = all.to_vec();
    broken.extend([step("INSERT INTO a VALUES (9)"), step("no SQL")]);
    schema::migrate(&mut db, &broken).expect_err("fails");
    assert_eq!(rows(&db), [1, 2], "all or none");
    assert_eq!(schema::marks(&db).expect("reads").version, 3);
}
