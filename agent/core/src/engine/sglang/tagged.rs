//! Messages that are MessagePack arrays, tagged with the class name.
//!
//! Owns: reading fields where their layout puts them, and checking that they hold what they should. Refuses: layouts
//! (`layouts`), pickles within (`pickled`).

use super::{
    Added, MAX_REQUESTS, Output, Outputs, ShapeError, Told,
    layouts::{self, Layout},
    pickled,
};
use crate::wire::msgpack::{Kind, MsgpackError, Reader};

/// The type code of an `array.array` among extensions.
const ARRAY: i8 = 1;

pub(super) fn read(bytes: &[u8], cut: bool) -> Result<Told<'_>, ShapeError> {
    let mut reader = Reader::new(bytes);
    let told = match message(&mut reader, cut) {
        Err(ShapeError::Msgpack(MsgpackError::Truncated)) if cut => return Err(ShapeError::Cut),
        told => told?,
    };
    if reader.rest().is_empty() {
        Ok(told)
    } else {
        Err(ShapeError::Value("the message's end"))
    }
}

fn message<'a>(reader: &mut Reader<'a>, cut: bool) -> Result<Told<'a>, ShapeError> {
    let mut whole = *reader;
    let (class, count) = header(reader)?;
    match class {
        "TokenizedGenerateReqInput" => Ok(Told::Added(vec![added(reader, count, cut)?])),
        "BatchTokenizedGenerateReqInput" => {
            if count < 3 {
                return Err(ShapeError::Fields(count));
            }
            reader.skip()?;
            reader.skip()?;
            let requests = reader.array()?;
            let mut all = Vec::new();
            for at in 0..requests {
                let (class, count) = header(reader)?;
                if class != "TokenizedGenerateReqInput" {
                    return Err(ShapeError::Value("batch"));
                }
                let request = added(reader, count, cut)?;
                if (at as usize) < MAX_REQUESTS {
                    all.push(request);
                }
            }
            skip(reader, count - 3, cut)?;
            Ok(Told::Added(all))
        }
        "AbortReq" => {
            let rid = reader.str()?;
            skip(reader, count.saturating_sub(1), cut)?;
            Ok(Told::Aborted(rid))
        }
        "BatchTokenIDOutput" => outputs(reader, count, &layouts::tables().ids, cut),
        "BatchStrOutput" => outputs(reader, count, &layouts::tables().texts, cut),
        _ => {
            if cut {
                *reader = Reader::new(&[]);
            } else {
                whole.skip()?;
                *reader = whole;
            }
            Ok(Told::Other)
        }
    }
}

/// The class, and how many fields follow.
fn header<'a>(reader: &mut Reader<'a>) -> Result<(&'a str, u32), ShapeError> {
    let count = reader.array()?.checked_sub(1).ok_or(ShapeError::Fields(0))?;
    Ok((reader.str()?, count))
}

/// Steps over fields. Those that a cut message lacks are none of ours.
fn skip(reader: &mut Reader<'_>, count: u32, cut: bool) -> Result<(), ShapeError> {
    for _ in 0..count {
        match reader.skip() {
            Err(MsgpackError::Truncated) if cut => {
                *reader = Reader::new(&[]);
                return Ok(());
            }
            skipped => skipped?,
        }
    }
    Ok(())
}

/// Id and prompt are where they are in every release; other senders leave fields off the end.
fn added<'a>(reader: &mut Reader<'a>, count: u32, cut: bool) -> Result<Added<'a>, ShapeError> {
    let layout = layouts::tables()
        .request
        .last()
        .ok_or(ShapeError::Fields(count))?;
    let mut added = Added::default();
    for at in 0..count {
        match layout.fields.get(at as usize).map(String::as_str) {
            Some("rid") => added.rid = reader.str()?,
            Some("input_ids") => {
                let mut numbers = *reader;
                match length(&mut numbers) {
                    Err(ShapeError::Msgpack(MsgpackError::Truncated)) if cut => {}
                    length => added.prompt_tokens = length?,
                }
                skip(reader, count - at, cut)?;
                break;
            }
            _ => match reader.skip() {
                Err(MsgpackError::Truncated) if cut && !added.rid.is_empty() => {
                    *reader = Reader::new(&[]);
                    break;
                }
                skipped => skipped?,
            },
        }
    }
    if added.rid.is_empty() {
        return Err(ShapeError::Missing("rid"));
    }
    Ok(added)
}

/// How many numbers an array has: a list, or an extension of `[length of its metadata][metadata][numbers]`, whose
/// metadata is the type code.
fn length(reader: &mut Reader<'_>) -> Result<Option<u64>, ShapeError> {
    match reader.peek()? {
        Kind::Nil => Ok(None),
        Kind::Array => Ok(Some(u64::from(reader.array()?))),
        Kind::Ext => {
            let (kind, data) = reader.ext()?;
            let width = match data {
                [0, 0, 0, 2, 0xa1, code, numbers @ ..] if kind == ARRAY => match code {
                    b'b' | b'B' => Some((numbers, 1)),
                    b'h' | b'H' => Some((numbers, 2)),
                    b'i' | b'I' => Some((numbers, 4)),
                    b'q' | b'Q' | b'l' | b'L' => Some((numbers, 8)),
                    _ => None,
                },
                _ => None,
            };
            let (numbers, width) = width.ok_or(ShapeError::Value("input_ids"))?;
            Ok(Some((numbers.len() / width) as u64))
        }
        found => Err(ShapeError::Field {
            field: "input_ids",
            found,
        }),
    }
}

fn outputs<'a>(
    reader: &mut Reader<'a>,
    count: u32,
    layouts: &'static [Layout],
    cut: bool,
) -> Result<Told<'a>, ShapeError> {
    let layout = layouts::of(layouts, count).ok_or(ShapeError::Fields(count))?;
    let mut told = Outputs::default();
    for at in 0..count {
        let name = layout.fields.get(at as usize).map_or("", String::as_str);
        match column(reader, name, &mut told) {
            Err(ShapeError::Msgpack(MsgpackError::Truncated)) if cut && at > 0 => {
                told.cut = true;
                *reader = Reader::new(&[]);
                break;
            }
            read => read?,
        }
    }
    Ok(Told::Outputs(told))
}

/// Reads one field: a value for each request.
fn column<'a>(reader: &mut Reader<'a>, name: &str, told: &mut Outputs<'a>) -> Result<(), ShapeError> {
    match name {
        "rids" => {
            // An idle step of a data-parallel engine has none.
            if reader.nil()? {
                return Ok(());
            }
            for at in 0..reader.array()? {
                let rid = reader.str()?;
                if (at as usize) < MAX_REQUESTS {
                    told.outputs.push(Output {
                        rid,
                        ..Output::default()
                    });
                } else {
                    told.cut = true;
                }
            }
            Ok(())
        }
        "finished_reasons" => each(reader, told, "finished_reasons", |output, reader| {
            output.finished = reason(reader)?;
            Ok(())
        }),
        "prompt_tokens" => count(reader, told, "prompt_tokens", |output| &mut output.prompt_tokens),
        "completion_tokens" => count(reader, told, "completion_tokens", |output| {
            &mut output.output_tokens
        }),
        "reasoning_tokens" => count(reader, told, "reasoning_tokens", |output| {
            &mut output.reasoning_tokens
        }),
        "cached_tokens" => count(reader, told, "cached_tokens", |output| &mut output.cached_tokens),
        "retraction_counts" => count(reader, told, "retraction_counts", |output| {
            &mut output.retractions
        }),
        "time_stats" => {
            if reader.nil()? {
                return Ok(());
            }
            let field = ("PickleWrapper", 1);
            if header(reader)? != field {
                return Err(ShapeError::Value("time_stats"));
            }
            let times = pickled::times(reader.bin()?).ok_or(ShapeError::Value("time_stats"))?;
            for (output, times) in told.outputs.iter_mut().zip(times) {
                output.times = times;
            }
            Ok(())
        }
        _ => Ok(reader.skip()?),
    }
}

fn each<'a>(
    reader: &mut Reader<'a>,
    told: &mut Outputs<'a>,
    field: &'static str,
    take: impl Fn(&mut Output<'a>, &mut Reader<'a>) -> Result<(), ShapeError>,
) -> Result<(), ShapeError> {
    if reader.nil()? {
        return Ok(());
    }
    let found = reader.peek()?;
    if found != Kind::Array {
        return Err(ShapeError::Field { field, found });
    }
    for at in 0..reader.array()? {
        match told.outputs.get_mut(at as usize) {
            Some(output) => take(output, reader)?,
            None => reader.skip()?,
        }
    }
    Ok(())
}

fn count<'a>(
    reader: &mut Reader<'a>,
    told: &mut Outputs<'a>,
    field: &'static str,
    of: impl for<'o> Fn(&'o mut Output<'a>) -> &'o mut Option<u64>,
) -> Result<(), ShapeError> {
    each(reader, told, field, |output, reader| {
        *of(output) = match reader.peek()? {
            Kind::Nil => {
                reader.nil()?;
                None
            }
            Kind::Int => Some(u64::try_from(reader.int()?).map_err(|_| ShapeError::Value(field))?),
            found => return Err(ShapeError::Field { field, found }),
        };
        Ok(())
    })
}

/// The `type` of a finish reason.
fn reason<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>, ShapeError> {
    if reader.nil()? {
        return Ok(None);
    }
    let mut reason = None;
    for _ in 0..reader.map()? {
        if reader.str()? == "type" {
            reason = Some(reader.str()?);
        } else {
            reader.skip()?;
        }
    }
    reason.map(Some).ok_or(ShapeError::Value("finished_reasons"))
}
