//! Detaches from functions, on a thread of its own.
//!
//! Owns: closing links. At each, the kernel waits until no processor can be in the probe any more, tens of milliseconds, and
//! it closes one at a time: those of a CUDA library take seconds, in which the ring must be read. Refuses: attaching.

use super::loader::uprobe;
use aya::Ebpf;
use aya::programs::uprobe::{UProbeLink, UProbeLinkId};

/// Programs, and where they are attached.
pub(super) type Links = Vec<(&'static str, UProbeLinkId)>;

/// Gives up these links; they are closed soon, and at the end of the process at the latest.
pub(super) fn detach(ebpf: &mut Ebpf, links: Links) {
    let take = |(program, link)| uprobe(ebpf, program).ok()?.take_link(link).ok();
    let links: Vec<UProbeLink> = links.into_iter().filter_map(take).collect();
    if links.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("detach".to_owned());
    // Without a thread they are closed here, with the closure that has them.
    drop(thread.spawn(move || drop(links)));
}
