//! Memory that a scripted response takes: so that limits are met for real.
//!
//! Owns: touching every page, and the file that fills the page cache. Refuses: limits (the test's control group).

use super::Script;
use std::{
    fs::File,
    io::{self, Read, Seek, Write},
};

const MIB: usize = 1 << 20;

/// What a response holds until it ends.
pub(super) struct Held {
    _anonymous: Vec<Vec<u8>>,
}

/// Takes what the script asks for: first the page cache, which the kernel can drop again, then memory that it can't.
pub(super) fn hold(script: &Script) -> io::Result<Held> {
    if script.cache_mib > 0 {
        // Unlinked from the start, so that nothing is left when this process is killed.
        let mut file: File = tempfile::tempfile()?;
        let piece = vec![7_u8; MIB];
        for _ in 0..script.cache_mib {
            file.write_all(&piece)?;
        }
        file.sync_data()?;
        file.rewind()?;
        let mut piece = piece;
        while file.read(&mut piece)? > 0 {}
    }
    let piece = |_| {
        let mut piece = vec![0_u8; MIB];
        // A page that is only reserved is not charged to anybody.
        for byte in piece.iter_mut().step_by(4096) {
            *byte = 1;
        }
        piece
    };
    Ok(Held {
        _anonymous: (0..script.allocate_mib).map(piece).collect(),
    })
}
