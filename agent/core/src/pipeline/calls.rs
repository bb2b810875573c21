//! Calls of functions within engines, on their way to what joins them with requests.
//!
//! Owns: whether they are believed, and of which engine they are. Refuses: their meaning (`slots`, `tokenize`).

use super::Pipeline;
use crate::{
    Anomaly, EngineKind, Observation,
    event::{Call, Socket},
    tokenize::TextCall,
};
use infertap_abi::Direction;

impl Pipeline {
    /// A process called a function that is probed.
    pub(super) fn call(&mut self, call: &Call<'_>, out: &mut Vec<Observation>) {
        if self.config.engine_hooks
            && let Some(engine) = self.engines.of(call.tgid)
        {
            if let Some(text) = TextCall::of(call, engine.kind) {
                self.tokenizing.call(&engine.id, text);
            }
            self.slots.call(call, &engine.id, engine.model.as_ref(), out);
            for _ in 0..self.slots.take_evicted() {
                self.anomalies.add(Anomaly::Evicted);
            }
        }
    }

    /// A thread reads what it is to serve: its calls tell of that request.
    pub(super) fn thread_read(&mut self, socket: Socket, direction: Direction) {
        if self.config.engine_hooks
            && direction == Direction::In
            && let Some(engine) = self.engines.of(socket.tgid)
            && matches!(engine.kind, EngineKind::LlamaCpp | EngineKind::Generic)
        {
            self.slots.read(socket.tgid, socket.tid, socket.conn, &engine.id);
        }
    }
}
