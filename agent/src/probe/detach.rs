//! Detaches from functions, on a thread of its own.
//!
//! Owns: closing links. At each, the kernel waits until no processor can be in the probe any more, tens of milliseconds, and
//! it closes one at a time: those of a CUDA library take seconds, in which others are to be attached to. Refuses: attaching.

use super::loader::uprobe;
use aya::Ebpf;
use aya::programs::uprobe::{UProbeLink, UProbeLinkId};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Between two looks whether links are closed.
const PAUSE: Duration = Duration::from_millis(5);

/// Programs, and where they are attached.
pub(super) type Links = Vec<(&'static str, UProbeLinkId)>;

/// Links that are being closed. A file must not be attached to again while its old links are there: each call would be seen
/// twice.
#[derive(Debug, Clone, Default)]
pub(super) struct Closing(Weak<()>);

impl Closing {
    /// All of them are closed.
    pub(super) fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Waits for that: seconds.
    pub(super) fn wait(&self) {
        while !self.is_over() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Gives up these links; they are closed soon, and at the end of the process at the latest.
pub(super) fn detach(ebpf: &mut Ebpf, links: Links) -> Closing {
    let take = |(program, link)| uprobe(ebpf, program).ok()?.take_link(link).ok();
    let links: Vec<UProbeLink> = links.into_iter().filter_map(take).collect();
    if links.is_empty() {
        return Closing::default();
    }
    let open = Arc::new(());
    let closing = Closing(Arc::downgrade(&open));
    let thread = std::thread::Builder::new().name("detach".to_owned());
    // Without a thread they are closed here, with the closure that has them.
    drop(thread.spawn(move || {
        drop(links);
        drop(open);
    }));
    closing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_is_over_when_the_last_that_closes_is_done() {
        assert!(Closing::default().is_over());
        let open = Arc::new(());
        let closing = Closing(Arc::downgrade(&open));
        assert!(!closing.is_over());
        drop(open);
        assert!(closing.is_over());
    }
}
