//! Connections that lost their state with an exchange open.
//!
//! Owns: remembering them for a while, so that the rest of that exchange is not told as another request. Refuses: more
//! than a fixed number; the oldest is forgotten first.

use crate::event::ConnId;
use std::collections::{HashSet, VecDeque};

/// Connections remembered at once.
const MAX_DROPPED: usize = 4096;

/// The memory.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    members: HashSet<ConnId>,
    order: VecDeque<ConnId>,
}

impl Dropped {
    pub(super) fn remember(&mut self, conn: ConnId) {
        if self.members.insert(conn) {
            self.order.push_back(conn);
            if self.order.len() > MAX_DROPPED
                && let Some(oldest) = self.order.pop_front()
            {
                self.members.remove(&oldest);
            }
        }
    }

    /// Whether it was remembered.
    pub(super) fn forget(&mut self, conn: ConnId) -> bool {
        let was = self.members.remove(&conn);
        if was {
            self.order.retain(|other| *other != conn);
        }
        was
    }

    /// State bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.members.len() * 4 * size_of::<ConnId>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut dropped = Dropped::default();
        for conn in 0..5000 {
            dropped.remember(ConnId(conn));
        }
        assert_eq!(dropped.members.len(), MAX_DROPPED);
        assert!(!dropped.forget(ConnId(0)));
        assert!(dropped.forget(ConnId(4999)));
        assert!(!dropped.forget(ConnId(4999)));
        assert_eq!(dropped.order.len(), MAX_DROPPED - 1);
    }
}
