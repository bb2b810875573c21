//! The content of a kept record, which is made when it is first asked for.
//!
//! Owns: making it once, on the thread that asks first: the store's, as a rule, and never the one that reads the ring.
//! Refuses: the raw text to everybody else: it can't be reached from here, and is gone when the content is made.

use infertap_core::content::{Absent, Side, Transcript};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes that content counts with before it is made.
const UNMADE: usize = 64 << 10;

type Make = Box<dyn FnOnce() -> Transcript + Send>;

/// What is kept of the content of one request. In JSON it is its [`Transcript`].
#[derive(Clone)]
pub struct KeptContent(Arc<Inner>);

struct Inner {
    made: OnceLock<Transcript>,
    make: Mutex<Option<Make>>,
}

impl KeptContent {
    /// What `make` will make when it is first asked for. It holds the raw text, and is dropped then.
    pub fn new(make: impl FnOnce() -> Transcript + Send + 'static) -> KeptContent {
        KeptContent(Arc::new(Inner {
            made: OnceLock::new(),
            make: Mutex::new(Some(Box::new(make))),
        }))
    }

    /// Bytes of memory that it takes, about; a guess before it is made.
    pub fn bytes(&self) -> usize {
        let Some(made) = self.0.made.get() else {
            return UNMADE;
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
            // What a request says is hostile. Where making fails, there is nothing: never the raw text.
            make.and_then(|make| catch_unwind(AssertUnwindSafe(make)).ok())
                .unwrap_or_else(failed)
        })
    }
}

fn failed() -> Transcript {
    Transcript {
        input: Side::absent(Absent::Failed),
        output: Side::absent(Absent::Failed),
        ..Transcript::default()
    }
}

impl From<Transcript> for KeptContent {
    fn from(made: Transcript) -> KeptContent {
        KeptContent(Arc::new(Inner {
            made: OnceLock::from(made),
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
    use infertap_core::content::Mode;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn it_is_made_once_and_by_who_asks_first() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let content = KeptContent::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Transcript {
                mode: Mode::Redacted,
                ..Transcript::default()
            }
        });
        let other = content.clone();
        assert_eq!(made.load(Ordering::Relaxed), 0);
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
        let content = KeptContent::new(|| panic!("a fault"));
        assert_eq!(content.get().input.absent, Some(Absent::Failed));
        assert_eq!(content.get().output.absent, Some(Absent::Failed));
        assert!(content.get().input.messages.is_empty());
        assert_eq!(format!("{content:?}"), "KeptContent");
    }
}
