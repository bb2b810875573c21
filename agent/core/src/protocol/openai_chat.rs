//! OpenAI chat completions, as OpenAI, vLLM, SGLang, llama.cpp, TGI and many others serve them.
//!
//! Owns: which requests and responses are of this protocol. Refuses: the shapes it shares with completions (`openai`).

use super::{BadMessage, Message, Protocol, RequestFacts, ResponseFacts, Said, openai};
use crate::{
    content,
    wire::{json_scan::Scalar, sse::SseEvent},
};

/// `POST …/chat/completions`, with or without `/v1` before it.
#[derive(Debug)]
pub struct OpenAiChat;

impl Protocol for OpenAiChat {
    fn name(&self) -> &'static str {
        "openai_chat"
    }

    fn claims(&self, method: &str, path: &str) -> bool {
        method == "POST" && path.ends_with("/chat/completions")
    }

    fn claims_message(&self, event: SseEvent<'_>) -> bool {
        openai::message_is(event, &["chat.completion.chunk", "chat.completion"])
    }

    fn claims_response(&self, response: &ResponseFacts) -> bool {
        matches!(
            response.object.as_deref(),
            Some("chat.completion" | "chat.completion.chunk")
        )
    }

    fn request_paths(&self) -> &'static [&'static str] {
        openai::REQUEST_PATHS
    }

    fn request_field(&self, path: usize, value: &Scalar<'_>, facts: &mut RequestFacts) {
        openai::request_field(path, value, facts);
    }

    fn response_paths(&self) -> &'static [&'static str] {
        openai::RESPONSE_PATHS
    }

    fn response_field(&self, path: usize, value: &Scalar<'_>, facts: &mut ResponseFacts) {
        openai::response_field(path, value, facts);
    }

    fn message<'a>(&self, event: SseEvent<'a>, request: &RequestFacts) -> Result<Message<'a>, BadMessage> {
        openai::message(event, request)
    }

    fn prompt(&self, body: &[u8]) -> Option<Vec<content::Message>> {
        openai::prompt(body)
    }

    fn answer(&self, body: &[u8]) -> Option<Vec<content::Message>> {
        openai::answer(body)
    }

    fn said(&self, event: SseEvent<'_>, out: &mut dyn FnMut(Said<'_>)) -> bool {
        openai::said(event, out)
    }
}
