//! Under which names the functions that are probed are found, and in which files: a table.
//!
//! Owns: the names. Refuses: finding them in files (`symbols`), programs (`attach`) and attaching (`calls`). A function
//! that takes its arguments otherwise is another function: its record would mean something else.

use super::symbols::Wanted;
use infertap_abi::Function;

/// One function: its names, and where it may be.
#[derive(Debug, Clone, Copy)]
pub struct FunctionSpec {
    /// Which function.
    pub function: Function,
    /// Its names, over releases.
    pub names: &'static [Wanted],
    /// Parts of the names of files that may have it. A process's executable is looked into as well.
    pub files: &'static [&'static str],
}

const fn llama(function: Function, names: &'static [Wanted]) -> FunctionSpec {
    FunctionSpec {
        function,
        names,
        files: &["llama"],
    }
}

/// Every function that is looked for.
pub const FUNCTIONS: &[FunctionSpec] = &[
    llama(Function::LlamaDecode, &[Wanted::C("llama_decode")]),
    llama(Function::LlamaProcess, &[Wanted::C("llama_process")]),
    llama(Function::LlamaTokenize, &[Wanted::C("llama_tokenize")]),
    llama(Function::LlamaTaskId, &[Wanted::Cpp("server_queue::get_new_id")]),
    llama(Function::LlamaTaskDefer, &[Wanted::Cpp("server_queue::defer")]),
    llama(
        Function::LlamaSlotLaunch,
        &[
            Wanted::Cpp("server_context_impl::launch_slot_with_task"),
            Wanted::Cpp("server_context::launch_slot_with_task"),
        ],
    ),
    llama(
        Function::LlamaSlotToken,
        &[
            Wanted::Cpp("server_context_impl::process_token"),
            Wanted::Cpp("server_context::process_token"),
        ],
    ),
    llama(Function::LlamaSlotRelease, &[Wanted::Cpp("server_slot::release")]),
    llama(
        Function::LlamaUpdateSlots,
        &[
            Wanted::Cpp("server_context_impl::update_slots"),
            Wanted::Cpp("server_context::update_slots"),
        ],
    ),
];

/// What calls of functions cover of an engine: `aspect` of `infertap_engine_coverage`, and the functions that it needs,
/// of each list at least one.
pub const ASPECTS: &[(&str, &[&[Function]])] = &[
    // When the engine computes, and for how long.
    ("steps", &[&[Function::LlamaDecode, Function::LlamaProcess]]),
    // Which request the engine takes up when, and when its tokens exist.
    (
        "slots",
        &[
            &[Function::LlamaTaskId],
            &[Function::LlamaSlotLaunch],
            &[Function::LlamaSlotToken],
            &[Function::LlamaSlotRelease],
        ],
    ),
    (
        "tokenizer",
        &[&[
            Function::LlamaTokenize,
            Function::HfTokenizersEncode,
            Function::TiktokenEncode,
        ]],
    ),
];
