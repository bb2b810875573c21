//! What an API server tells an engine core.
//!
//! Owns: additions and aborts. Refuses: the prompt (its token ids are handed on where they lie), utility calls.

use super::{
    Opaque, ShapeError, TokenIds, array,
    layouts::{Struct, Use, Version},
};
use crate::wire::{
    msgpack::{Kind, MsgpackError, Reader},
    zmtp::Message,
};

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Request<'a> {
    /// A request enters.
    Added(Added<'a>),
    /// Requests were given up, by their engine ids: the client went away, or a stop string came.
    Aborted(Vec<&'a str>),
    /// Something about the engine itself.
    Other,
}

/// A request that enters the engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Added<'a> {
    /// Its id within the engine, which [`super::Output`] repeats.
    pub engine_id: &'a str,
    /// The id that the HTTP response shows, or begins with; since 0.14. Where it is absent, `engine_id` begins with it.
    pub external_id: Option<&'a str>,
    /// Prompt tokens; absent when the prompt came as embeddings.
    pub prompt_tokens: Option<u64>,
    /// The prompt's token ids, where they are all that the prompt is.
    pub token_ids: TokenIds<'a>,
    /// What keeps its part of the cache apart from others'; empty without one.
    pub cache_salt: Opaque<'a>,
    /// Its adapter, as it stands in the message; empty without one.
    pub adapter: Opaque<'a>,
    /// Most tokens that it may generate; absent when unbounded, pooling, or the message was cut before it.
    pub max_tokens: Option<u64>,
    /// When it arrived at the API server: seconds since the Unix epoch.
    pub arrival: Option<f64>,
}

/// What vLLM takes for `max_tokens` when nobody says otherwise, and then leaves off the message.
const DEFAULT_MAX_TOKENS: u64 = 16;

pub(super) fn read(message: Message<'_>, release: Option<Version>) -> Result<Request<'_>, ShapeError> {
    let kind = message.part(0).ok_or(ShapeError::Parts)?;
    // To a core that starts goes a map that says how it is to be made.
    if message.parts() == 1 && Reader::new(kind.bytes).peek() == Ok(Kind::Map) {
        return Ok(Request::Other);
    }
    let [kind] = *kind.bytes else {
        return Err(ShapeError::Parts);
    };
    match kind {
        0 | 1 => {}
        // A data-parallel wave, a utility call, and what the engine core sends to itself.
        2..=5 => return Ok(Request::Other),
        other => return Err(ShapeError::RequestType(other)),
    }
    let body = message.part(1).ok_or(ShapeError::Parts)?;
    let mut reader = Reader::new(body.bytes);
    let request = if kind == 0 {
        Request::Added(added(&mut reader, release, !body.is_whole())?)
    } else {
        Request::Aborted(aborted(&mut reader, !body.is_whole())?)
    };
    if reader.rest().is_empty() {
        Ok(request)
    } else {
        Err(ShapeError::Value("the message's end"))
    }
}

fn added<'a>(reader: &mut Reader<'a>, release: Option<Version>, cut: bool) -> Result<Added<'a>, ShapeError> {
    let (added, _) = array::read(
        reader,
        Struct::Request,
        release,
        cut,
        |added: &mut Added<'a>, use_, reader| {
            match use_ {
                Use::RequestId => added.engine_id = reader.str()?,
                Use::PromptTokenIds => {
                    if !reader.nil()? {
                        added.prompt_tokens = Some(u64::from(Reader::array(&mut reader.clone())?));
                        added.token_ids = TokenIds::read(reader)?;
                    }
                }
                Use::SamplingParams => {
                    if !reader.nil()? {
                        added.max_tokens = max_tokens(reader)?;
                    }
                }
                Use::ArrivalTime => added.arrival = Some(array::number(reader, "arrival_time")?),
                Use::ExternalReqId => {
                    if !reader.nil()? {
                        added.external_id = Some(reader.str()?);
                    }
                }
                Use::CacheSalt => {
                    if !reader.nil()? {
                        added.cache_salt = Opaque(reader.str()?.as_bytes());
                    }
                }
                Use::LoraRequest => {
                    if !reader.nil()? {
                        added.adapter = Opaque(skipped(reader)?);
                    }
                }
                // They stand behind the ids in every layout. The placeholders of two pictures are the same tokens.
                Use::MultiModal => {
                    if !matches!(skipped(reader)?, [0xc0 | 0x90 | 0x80]) {
                        added.token_ids = TokenIds::default();
                    }
                }
                _ => reader.skip()?,
            }
            Ok(())
        },
    )?;
    if added.engine_id.is_empty() {
        return Err(ShapeError::Value("request_id"));
    }
    Ok(added)
}

/// Steps over a value: its bytes.
fn skipped<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], ShapeError> {
    let before = reader.rest();
    reader.skip()?;
    let len = before.len().saturating_sub(reader.rest().len());
    Ok(before.get(..len).unwrap_or_default())
}

fn max_tokens(reader: &mut Reader<'_>) -> Result<Option<u64>, ShapeError> {
    let mut max_tokens = Some(DEFAULT_MAX_TOKENS);
    array::map(reader, |key, reader| {
        if key != "max_tokens" {
            return Ok(false);
        }
        max_tokens = if reader.nil()? {
            None
        } else {
            Some(array::count(reader, "max_tokens")?)
        };
        Ok(true)
    })?;
    Ok(max_tokens)
}

fn aborted<'a>(reader: &mut Reader<'a>, cut: bool) -> Result<Vec<&'a str>, ShapeError> {
    let mut ids = Vec::new();
    for _ in 0..reader.array()? {
        match reader.str() {
            Ok(id) => ids.push(id),
            Err(MsgpackError::Truncated) if cut => {
                *reader = Reader::new(&[]);
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ids)
}
