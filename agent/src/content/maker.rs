//! The thread that makes content, so that raw text is not held for as long as a record waits somewhere.
//!
//! Owns: its queue, and ending with who holds it. Refuses: waiting: content that finds no room is made by who reads it first.

use super::KeptContent;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Content that waits to be made.
const MOST: usize = 512;

/// See the module. The thread ends when this is dropped and all that waits is made.
#[derive(Debug, Default)]
pub(super) struct Maker(OnceLock<Option<SyncSender<KeptContent>>>);

impl Maker {
    /// Starts the thread, if it does not run yet.
    pub(super) fn begin(&self) {
        self.0.get_or_init(|| {
            let (sender, waiting) = sync_channel(MOST);
            let thread = std::thread::Builder::new().name("content".to_owned());
            match thread.spawn(move || run(&waiting)) {
                Ok(_) => Some(sender),
                Err(error) => {
                    tracing::warn!(
                        "no thread that makes content could be started ({error}): it is made when it is first read"
                    );
                    None
                }
            }
        });
    }

    /// Has this made soon. Never waits.
    pub(super) fn soon(&self, content: &KeptContent) {
        if let Some(Some(sender)) = self.0.get() {
            // Without room it stays as it is: who reads it makes it.
            let _ = sender.try_send(content.clone());
        }
    }
}

fn run(waiting: &Receiver<KeptContent>) {
    for content in waiting {
        content.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infertap_core::content::{Mode, Transcript};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn content_is_made_though_nobody_reads_it() {
        let maker = Maker::default();
        let (told, made) = channel();
        let content = |n: usize| {
            let told = told.clone();
            KeptContent::new(Mode::Full, 1, Transcript::default, move |_| {
                let _ = told.send(n);
            })
        };
        maker.soon(&content(0));
        assert!(made.try_recv().is_err(), "it has not begun");
        maker.begin();
        maker.begin();
        for n in 1..4 {
            maker.soon(&content(n));
        }
        drop(maker);
        assert_eq!([(); 3].map(|()| made.recv_timeout(LONG)), [Ok(1), Ok(2), Ok(3)]);
    }

    #[test]
    fn what_finds_no_room_is_left_to_its_reader() {
        let maker = Maker::default();
        maker.begin();
        let (begun, begins) = channel();
        let (go, wait) = channel::<()>();
        let first = move || {
            let _ = begun.send(());
            let _ = wait.recv_timeout(LONG);
            Transcript::default()
        };
        maker.soon(&KeptContent::new(Mode::Full, 1, first, |_| {}));
        begins.recv_timeout(LONG).expect("the thread has begun");
        let (told, made) = channel();
        let content = |n: usize| {
            let told = told.clone();
            KeptContent::new(Mode::Full, 1, Transcript::default, move |_| {
                let _ = told.send(n);
            })
        };
        let late: Vec<KeptContent> = (0..=MOST).map(content).collect();
        for content in &late {
            maker.soon(content);
        }
        go.send(()).expect("it waits");
        for n in 0..MOST {
            assert_eq!(made.recv_timeout(LONG), Ok(n));
        }
        assert!(made.try_recv().is_err(), "there was no room for it");
        late[MOST].get();
        assert_eq!(made.try_recv(), Ok(MOST));
    }
}
