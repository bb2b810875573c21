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
    // What encodes one text, alone or on the threads that share a batch: every text is one call, and none is within
    // another. (What encodes a batch calls these; what Python calls, encodes a batch or calls these.)
    FunctionSpec {
        function: Function::HfTokenizersEncode,
        names: &[
            Wanted::Rust("tokenizers::tokenizer::TokenizerImpl::encode"),
            Wanted::Rust("tokenizers::tokenizer::TokenizerImpl::encode_fast"),
            Wanted::Rust("tokenizers::tokenizer::TokenizerImpl::encode_char_offsets"),
        ],
        files: &["tokenizers"],
    },
    // To 0.7 the module is `_tiktoken`, and what Python calls is told apart by `_native`.
    FunctionSpec {
        function: Function::TiktokenEncode,
        names: &[
            Wanted::Rust("tiktoken::CoreBPE::encode"),
            Wanted::Rust("tiktoken::CoreBPE::encode_ordinary"),
            Wanted::Rust("_tiktoken::CoreBPE::_encode_native"),
            Wanted::Rust("_tiktoken::CoreBPE::_encode_ordinary_native"),
        ],
        files: &["tiktoken"],
    },
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
        "tokenizer_calls",
        &[&[
            Function::LlamaTokenize,
            Function::HfTokenizersEncode,
            Function::TiktokenEncode,
        ]],
    ),
];
