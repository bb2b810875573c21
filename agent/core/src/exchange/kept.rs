//! What is held of what an exchange says: to be counted, and to be kept as content.
//!
//! Owns: when that is lost, and when it is handed over. Refuses: its bounds (`count`, `content`).

use super::{body::Piece, facts::Facts};
use crate::{
    content::Absent,
    context::Context,
    count::{CountOutcome, Kept},
};

impl Facts {
    /// A piece of the response's body.
    pub(super) fn piece(&mut self, piece: &Piece<'_>, context: &mut Context<'_>) {
        match piece {
            Piece::Item(item) => self.item(*item, context),
            Piece::Document(bytes) => {
                if let Some(heard) = &mut self.heard {
                    heard.document(bytes);
                }
            }
        }
    }

    /// Part of what it said is not known.
    pub(super) fn lose_kept(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.lose(CountOutcome::Incomplete);
        }
        if let Some(heard) = &mut self.heard {
            heard.lose_input(Absent::Incomplete);
        }
    }

    /// Part of its answer is not known.
    pub(super) fn lose_heard(&mut self, why: Absent) {
        if let Some(heard) = &mut self.heard {
            heard.lose_output(why);
        }
    }

    /// No more of the request will come; `whole`: all of it did.
    pub(super) fn request_is_kept(&mut self, whole: bool) {
        if !whole {
            self.lose_kept();
        }
        // The response will say.
        if let Some(kept) = &mut self.kept
            && (self.request.include_usage == Some(true) || self.request.stream != Some(true))
        {
            kept.keep_request_only();
        }
    }

    /// The exchange has ended: what there is to be counted. Nothing of what was refused, or not seen from its begin.
    pub(super) fn take_kept(&mut self) -> Option<Kept> {
        let refused = self.http_status.is_some_and(|status| status >= 400);
        let kept = self.kept.take()?;
        (!refused).then_some(*kept)
    }
}
