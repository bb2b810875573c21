//! llama.cpp: what calls of its library and of its server mean.
//!
//! Owns: which argument or captured word is what, checked before it is believed. Refuses: joining calls to requests
//! (`slots`).
//!
//! The library's functions (`llama_decode`, `llama_process`, `llama_tokenize`) are exported and there in every build; those
//! of the server (tasks, slots) are there unless its symbols were stripped.

mod batch;

pub(crate) use batch::{Batch, TokenSize};

use crate::event::Call;
use infertap_abi::Function;

/// One call, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LlamaCall {
    /// The model was run over a batch.
    Step(Batch),
    /// A text became so many tokens.
    Tokenized(u64),
    /// A task got its number, in the thread that serves its request.
    TaskMade(u32),
    /// A slot took up a task.
    Launched { slot: u64, task: u32 },
    /// A slot's request has one token more.
    Token { slot: u64 },
    /// A slot is free again.
    Released { slot: u64 },
    /// The slots' next batch is put together.
    Preparing,
}

impl LlamaCall {
    /// `None`: a call of something else, one that failed, or one that makes no sense.
    pub(crate) fn of(call: &Call<'_>) -> Option<LlamaCall> {
        // Every function here returns an `int` or a `bool`.
        let ret = call.ret.map(|ret| ret as u32 as i32);
        match call.function {
            Function::LlamaDecode => Some(LlamaCall::Step(Batch::by_value(call.bytes))),
            Function::LlamaProcess => Some(LlamaCall::Step(Batch::of_object(call.bytes))),
            Function::LlamaTokenize => Some(LlamaCall::Tokenized(u64::try_from(ret?).ok()?)),
            Function::LlamaTaskId => Some(LlamaCall::TaskMade(u32::try_from(ret?).ok()?)),
            Function::LlamaSlotLaunch if ret? & 0xff != 0 => Some(LlamaCall::Launched {
                slot: call.args[1],
                task: task_id(call.bytes)?,
            }),
            Function::LlamaSlotToken => Some(LlamaCall::Token { slot: call.args[2] }),
            Function::LlamaSlotRelease => Some(LlamaCall::Released { slot: call.args[0] }),
            Function::LlamaUpdateSlots => Some(LlamaCall::Preparing),
            _ => None,
        }
    }
}

/// The first field of a `server_task`.
fn task_id(bytes: &[u8]) -> Option<u32> {
    let id = i32::from_le_bytes(*bytes.first_chunk()?);
    u32::try_from(id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: Function, args: [u64; 4], ret: Option<u64>, bytes: &[u8]) -> Option<LlamaCall> {
        LlamaCall::of(&Call {
            tgid: 1,
            tid: 2,
            function,
            begin: 10,
            end: 20,
            args,
            ret,
            bytes,
        })
    }

    #[test]
    fn calls_as_a_real_server_made_them() {
        let launch = |ret, bytes: &[u8]| {
            let args = [0x55ab_0bbb_d770, 0x7f39_3435_20c0, 0x7f39_3a6f_99d0, 0];
            call(Function::LlamaSlotLaunch, args, Some(ret), bytes)
        };
        let slot = 0x7f39_3435_20c0;
        let launched = Some(LlamaCall::Launched { slot, task: 0x136 });
        assert_eq!(launch(1, &[0x36, 1, 0, 0]), launched);
        // Only the lowest byte of a register that holds a `bool` is defined.
        assert_eq!(launch(0xffff_ff01, &[0x36, 1, 0, 0]), launched);
        assert_eq!(
            launch(0xffff_ff00, &[0x36, 1, 0, 0]),
            None,
            "the task was refused"
        );
        assert_eq!(launch(1, &[0xff; 4]), None, "a task without a number");
        assert_eq!(launch(1, &[]), None, "memory that could not be read");
        let tokenized = |ret| call(Function::LlamaTokenize, [0; 4], Some(ret), &[]);
        assert_eq!(tokenized(0x1_0000_002b), Some(LlamaCall::Tokenized(43)));
        assert_eq!(tokenized(0xffff_ffd5), None, "there was no room for the tokens");
        let made = call(Function::LlamaTaskId, [0; 4], Some(321), &[]);
        assert_eq!(made, Some(LlamaCall::TaskMade(321)));
        let token = call(Function::LlamaSlotToken, [1, 2, slot, 4], None, &[]);
        assert_eq!(token, Some(LlamaCall::Token { slot }));
        let released = call(Function::LlamaSlotRelease, [slot, 2, 3, 4], None, &[]);
        assert_eq!(released, Some(LlamaCall::Released { slot }));
        assert_eq!(call(Function::TiktokenEncode, [0; 4], Some(1), &[]), None);
    }
}
