//! What a scripted response looks like: chunk counts, gaps, write shapes, failures.
//!
//! Owns: the `script` member of a request and its defaults. Refuses: unknown members, so that a typing error in a test
//! does not go unnoticed.

use super::engine::GpuWork;
use serde::{Deserialize, Serialize};

/// The schedule and shape of one response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// HTTP status. Other than 200, an error object is sent.
    pub status: u16,
    /// Content-bearing chunks.
    pub chunks: u32,
    /// Microseconds from the request to the first of them (also before a response that is not streamed).
    pub first_gap_us: u64,
    /// Microseconds from one to the next; 0 is full speed.
    pub gap_us: u64,
    /// Tokens in each.
    pub tokens_per_chunk: u32,
    /// Bytes of filler in each, beside its tokens.
    pub padding: usize,
    /// What the chunks say, one after the other; those behind the last say their words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub say: Vec<String>,
    /// `usage.prompt_tokens`.
    pub prompt_tokens: u32,
    /// Begin with a role-only delta.
    pub role_chunk: bool,
    /// Send a comment line before each chunk.
    pub comments: bool,
    /// After this many chunks send an error object and end the stream.
    pub error_after: Option<u32>,
    /// After this many chunks close the connection in the middle of the response.
    pub break_after: Option<u32>,
    /// Answer with `Connection: close` and no length: the body runs until close.
    pub close: bool,
    /// How the head travels.
    pub head: HeadStyle,
    /// How a chunk travels.
    pub write: WriteStyle,
    /// Chunks come when an engine has computed them on the stand-in GPU, instead of by `first_gap_us` and `gap_us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuWork>,
    /// A small send buffer and non-blocking writes: a slow client makes them fail with `EAGAIN`.
    pub nonblocking: bool,
    /// Read so many MiB of a new file through the page cache before the response begins.
    pub cache_mib: usize,
    /// Hold so many MiB of memory from before the response begins until it ends.
    pub allocate_mib: usize,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            status: 200,
            chunks: 8,
            first_gap_us: 0,
            gap_us: 0,
            tokens_per_chunk: 1,
            padding: 0,
            say: Vec::new(),
            prompt_tokens: 7,
            role_chunk: true,
            comments: false,
            error_after: None,
            break_after: None,
            close: false,
            head: HeadStyle::Alone,
            write: WriteStyle::Whole,
            gpu: None,
            nonblocking: false,
            cache_mib: 0,
            allocate_mib: 0,
        }
    }
}

/// How a response head travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadStyle {
    /// At once and alone, as llama.cpp's server and uvicorn do.
    Alone,
    /// In one write with what follows.
    WithBody,
}

/// How a chunk travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteStyle {
    /// One write.
    Whole,
    /// Two writes, cut in the middle of the payload.
    Split,
    /// One vectored write of size line, payload and CRLF, as hyper does.
    Vectored,
}
