//! The content of a kept record, which is made when it is first asked for.
//!
//! Owns: making it once, on the thread that asks first: the maker's, as a rule, and never the one that reads the ring.
//! Refuses: the raw text to everybody else: it can't be reached from here, and is gone when the content is made.

use infertap_core::content::{Absent, Mode, Side, Transcript};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

type Make = Box<dyn FnOnce() -> Transcript + Send>;

thread_local! {
    /// This thread makes content: a panic's message may hold a piece of it.
    static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// What is kept of the content of one request. In JSON it is its [`Transcript`].
#[derive(Clone)]
pub struct KeptContent(Arc<Inner>);

struct Inner {
    made: OnceLock<Transcript>,
    /// Bytes of the raw text.
    raw: usize,
    make: Mutex<Option<Make>>,
}

impl KeptContent {
    /// What `make` will make when it is first asked for. It holds the raw text, of `raw` bytes, and is dropped then. `told` is told what was
    /// made; where making fails that is nothing, in this mode.
    pub fn new(
        mode: Mode,
        raw: usize,
        make: impl FnOnce() -> Transcript + Send + 'static,
        told: impl FnOnce(&Transcript) + Send + 'static,
    ) -> KeptContent {
        let make = move || {
            // What a request says is hostile. Where making fails, there is nothing: never the raw text.
            let made = quietly(make).unwrap_or_else(|| failed(mode));
            told(&made);
            made
        };
        KeptContent(Arc::new(Inner {
            made: OnceLock::new(),
            raw,
            make: Mutex::new(Some(Box::new(make))),
        }))
    }

    /// Bytes of memory that it takes, about; those of the raw text before it is made.
    pub fn bytes(&self) -> usize {
        let Some(made) = self.0.made.get() else {
            return self.0.raw;
        };
        let parts = [&made.input, &made.output]
            .into_iter()
            .flat_map(|side| &side.messages)
            .flat_map(|message| &message.parts);
        parts.map(|part| part.content.len() + 128).sum()
    }

    /// The content. The first call makes it, which takes some milliseconds for a long prompt; others wait for it.
    pub fn get(&self) -> &Transcript {
        self.0.made.get_or_init(|| {
            let make = self.0.make.lock().unwrap_or_else(PoisonError::into_inner).take();
            make.map_or_else(|| failed(Mode::None), |make| make())
        })
    }
}

fn failed(mode: Mode) -> Transcript {
    Transcript {
        mode,
        input: Side::absent(Absent::Failed),
        output: Side::absent(Absent::Failed),
        ..Transcript::default()
    }
}

/// What `make` makes, unless it panics. Then its place is told, and not its message: the library quotes the text there.
fn quietly(make: impl FnOnce() -> Transcript) -> Option<Transcript> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if MAKES.get() {
                let place = info.location().map_or_else(String::new, ToString::to_string);
                tracing::error!(
                    "the content of a record could not be made and is left out: a fault at {place}"
                );
            } else {
                before(info);
            }
        }));
    });
    MAKES.set(true);
    let made = catch_unwind(AssertUnwindSafe(make));
    MAKES.set(false);
    made.ok()
}

impl From<Transcript> for KeptContent {
    fn from(made: Transcript) -> KeptContent {
        KeptContent(Arc::new(Inner {
            made: OnceLock::from(made),
            raw: 0,
            make: Mutex::new(None),
        }))
    }
}

impl PartialEq for KeptContent {
    fn eq(&self, other: &KeptContent) -> bool {
        self.get() == other.get()
    }
}

/// Never the text: what is printed for debugging ends in logs.
impl fmt::Debug for KeptContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptContent")
    }
}

impl Serialize for KeptContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeptContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeptContent, D::Error> {
        Transcript::deserialize(deserializer).map(KeptContent::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn it_is_made_once_and_by_who_asks_first() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let make = || Transcript {
            mode: Mode::Redacted,
            ..Transcript::default()
        };
        let told = move |_: &Transcript| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let content = KeptContent::new(Mode::Redacted, 7, make, told);
        let other = content.clone();
        assert_eq!((made.load(Ordering::Relaxed), content.bytes()), (0, 7));
        assert_eq!(content.get().mode, Mode::Redacted);
        assert_eq!(content, other);
        let json = serde_json::to_string(&content).expect("JSON");
        assert_eq!(json, r#"{"mode":"redacted","input":{},"output":{}}"#);
        let read: KeptContent = serde_json::from_str(&json).expect("its own JSON");
        assert_eq!(read, content);
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn where_making_fails_there_is_nothing() {
        let content = KeptContent::new(Mode::Full, 1, || panic!("a fault"), |_| {});
        assert_eq!(content.get().mode, Mode::Full);
        assert_eq!(content.get().input.absent, Some(Absent::Failed));
        assert_eq!(content.get().output.absent, Some(Absent::Failed));
        assert!(content.get().input.messages.is_empty());
        assert_eq!(format!("{content:?}"), "KeptContent");
    }
}
