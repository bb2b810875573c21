//! Messages that are pickles.
//!
//! Owns: finding an object's class and fields however its release pickles it, and the facts in them. Refuses: the
//! pickle format (`wire::pickle`).

use super::{Added, MAX_REQUESTS, Output, Outputs, ShapeError, Times, Told, nanos};
use crate::wire::pickle::{Node, Pickle, Value};

/// An object's class, and its fields: a dict, or what was read of one when the message broke off.
struct Object<'p, 'a> {
    pickle: &'p Pickle<'a>,
    class: &'a str,
    fields: Fields<'p, 'a>,
}

enum Fields<'p, 'a> {
    Dict(Value<'a>),
    /// Names and values, by turns. The last may not be complete.
    Broken(&'p [Value<'a>]),
    None,
}

pub(super) fn read(bytes: &[u8], cut: bool) -> Result<Told<'_>, ShapeError> {
    let pickle = Pickle::read(bytes)?;
    let message = match pickle.root() {
        Some(_) if !pickle.rest().is_empty() => return Err(ShapeError::Value("the message's end")),
        Some(root) => object(&pickle, root).ok_or(ShapeError::Missing("the message's class"))?,
        None if cut => broken(&pickle).ok_or(ShapeError::Cut)?,
        None => return Err(crate::wire::pickle::PickleError::Truncated.into()),
    };
    let cut = pickle.root().is_none();
    match message.class {
        "TokenizedGenerateReqInput" => Ok(Told::Added(vec![added(&message)?])),
        "BatchTokenizedGenerateReqInput" => {
            let batch = message.field("batch").and_then(|batch| pickle.items(batch));
            let (requests, _) = match batch {
                Some(batch) => batch,
                None if cut => return Err(ShapeError::Cut),
                None => return Err(ShapeError::Missing("batch")),
            };
            let requests = requests.iter().take(MAX_REQUESTS).map(|request| {
                let request = object(&pickle, *request).ok_or(ShapeError::Value("batch"))?;
                added(&request)
            });
            Ok(Told::Added(requests.collect::<Result<_, _>>()?))
        }
        "AbortReq" => Ok(Told::Aborted(message.text("rid").unwrap_or_default())),
        // In 0.4.10 the names are shorter.
        "BatchTokenIDOutput" | "BatchStrOutput" | "BatchTokenIDOut" | "BatchStrOut" => {
            Ok(Told::Outputs(outputs(&message, cut)?))
        }
        _ => Ok(Told::Other),
    }
}

/// The times in a pickled list of time stats.
pub(super) fn times(bytes: &[u8]) -> Option<Vec<Times>> {
    let pickle = Pickle::read(bytes).ok()?;
    times_of(&pickle, pickle.root()?)
}

fn added<'a>(message: &Object<'_, 'a>) -> Result<Added<'a>, ShapeError> {
    let rid = message.text("rid").filter(|rid| !rid.is_empty());
    let ids = message.field("input_ids");
    Ok(Added {
        rid: rid.ok_or(ShapeError::Missing("rid"))?,
        prompt_tokens: ids.and_then(|ids| length(message.pickle, ids)),
    })
}

/// How many numbers a list or an `array.array` has.
fn length(pickle: &Pickle<'_>, value: Value<'_>) -> Option<u64> {
    if let Some((_, len)) = pickle.items(value) {
        return Some(len);
    }
    let Some(Node::Object { callable, args, .. }) = pickle.node(value) else {
        return None;
    };
    let args = pickle.items(*args)?.0;
    match (pickle.name(*callable)?, args) {
        // (class, type code, machine format, bytes)
        (("array", "_array_reconstructor"), [_, Value::Str(code), _, Value::Bytes(bytes)]) => {
            let width = match *code {
                "b" | "B" => 1,
                "h" | "H" => 2,
                "i" | "I" => 4,
                "q" | "Q" | "l" | "L" => 8,
                _ => return None,
            };
            Some(bytes.len() as u64 / width)
        }
        // An empty one.
        (("array", "array"), [Value::Str(_)]) => Some(0),
        (("array", "array"), [Value::Str(_), list]) => pickle.items(*list).map(|(_, len)| len),
        _ => None,
    }
}

fn outputs<'a>(message: &Object<'_, 'a>, cut: bool) -> Result<Outputs<'a>, ShapeError> {
    let pickle = message.pickle;
    let Some(rids) = message.field("rids") else {
        return Err(if cut {
            ShapeError::Cut
        } else {
            ShapeError::Missing("rids")
        });
    };
    // An idle step of a data-parallel engine has none.
    if rids == Value::None {
        return Ok(Outputs::default());
    }
    let (rids, len) = pickle.items(rids).ok_or(ShapeError::Value("rids"))?;
    let column = |name| {
        message
            .field(name)
            .and_then(|column| pickle.items(column))
            .map(|(items, _)| items)
    };
    let finished = column("finished_reasons");
    if finished.is_none() && !cut {
        return Err(ShapeError::Missing("finished_reasons"));
    }
    let count = |column: Option<&[Value<'a>]>, at: usize| match column?.get(at)? {
        Value::Int(count) => u64::try_from(*count).ok(),
        _ => None,
    };
    let seconds = |column: Option<&[Value<'a>]>, at: usize| match column?.get(at)? {
        Value::Float(seconds) => Some(*seconds),
        _ => None,
    };
    let [prompt, output, reasoning, cached, retractions] = [
        "prompt_tokens",
        "completion_tokens",
        "reasoning_tokens",
        "cached_tokens",
        "retraction_counts",
    ]
    .map(column);
    // In 0.5.6 two times come as columns of their own.
    let (forward, queue) = (column("forward_entry_time"), column("queue_time"));
    let times = message
        .field("time_stats")
        .and_then(|times| times_of(pickle, times))
        .unwrap_or_default();
    let mut outputs = Vec::with_capacity(rids.len().min(MAX_REQUESTS));
    for (at, rid) in rids.iter().take(MAX_REQUESTS).enumerate() {
        let Value::Str(rid) = *rid else {
            return Err(ShapeError::Value("rids"));
        };
        let reason = finished.and_then(|finished| finished.get(at).copied());
        let entered = seconds(forward, at).filter(|entered| *entered > 0.0);
        outputs.push(Output {
            rid,
            finished: match reason {
                None | Some(Value::None) => None,
                Some(reason) => match pickle.get(reason, "type") {
                    Some(Value::Str(reason)) => Some(reason),
                    _ => return Err(ShapeError::Value("finished_reasons")),
                },
            },
            prompt_tokens: count(prompt, at),
            output_tokens: count(output, at),
            reasoning_tokens: count(reasoning, at),
            cached_tokens: count(cached, at),
            retractions: count(retractions, at),
            times: times.get(at).copied().unwrap_or(Times {
                queued: entered
                    .zip(seconds(queue, at))
                    .and_then(|(at, waited)| nanos(at - waited)),
                scheduled: entered.and_then(nanos),
                ..Times::default()
            }),
        });
    }
    Ok(Outputs {
        cut: cut || len > outputs.len() as u64,
        outputs,
    })
}

fn times_of(pickle: &Pickle<'_>, list: Value<'_>) -> Option<Vec<Times>> {
    let (stats, _) = pickle.items(list)?;
    let each = |stats: &Value<'_>| {
        let stats = object(pickle, *stats).filter(|object| object.class == "SchedulerReqTimeStats")?;
        let at = |name| match stats.field(name) {
            Some(Value::Float(seconds)) => nanos(seconds),
            _ => None,
        };
        Some(Times {
            queued: at("wait_queue_entry_time"),
            scheduled: at("forward_entry_time"),
            prefilled: at("prefill_finished_time"),
            completed: at("completion_time"),
        })
    };
    Some(
        stats
            .iter()
            .take(MAX_REQUESTS)
            .map(|stats| each(stats).unwrap_or_default())
            .collect(),
    )
}

impl<'a> Object<'_, 'a> {
    fn field(&self, name: &str) -> Option<Value<'a>> {
        match self.fields {
            Fields::Dict(dict) => self.pickle.get(dict, name),
            Fields::Broken(values) => {
                let complete = values.len().saturating_sub(1) / 2 * 2;
                let pairs = values.get(..complete)?.chunks_exact(2);
                pairs
                    .rev()
                    .find(|pair| pair[0] == Value::Str(name))
                    .map(|pair| pair[1])
            }
            Fields::None => None,
        }
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        match self.field(name)? {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }
}

/// Structs of msgspec are `msgspec._utils.rebuild(class, fields)`; other objects are a class with a state.
fn object<'p, 'a>(pickle: &'p Pickle<'a>, value: Value<'a>) -> Option<Object<'p, 'a>> {
    let Some(Node::Object {
        callable,
        args,
        state,
    }) = pickle.node(value)
    else {
        return None;
    };
    let (class, fields) = match pickle.name(*callable)? {
        ("msgspec._utils", "rebuild") => match pickle.items(*args)?.0 {
            [class, fields] => (pickle.name(*class)?.1, Fields::Dict(*fields)),
            _ => return None,
        },
        (_, class) => match state {
            Value::None => (class, Fields::None),
            state => (class, Fields::Dict(*state)),
        },
    };
    Some(Object {
        pickle,
        class,
        fields,
    })
}

/// The outermost object of a pickle that broke off within its fields.
fn broken<'p, 'a>(pickle: &'p Pickle<'a>) -> Option<Object<'p, 'a>> {
    let (below, fields) = pickle.broken();
    let class = match below {
        [rebuild, class, _] if pickle.name(*rebuild) == Some(("msgspec._utils", "rebuild")) => {
            pickle.name(*class)?.1
        }
        [object, _] => match pickle.node(*object)? {
            Node::Object { callable, .. } => pickle.name(*callable)?.1,
            _ => return None,
        },
        _ => return None,
    };
    Some(Object {
        pickle,
        class,
        fields: Fields::Broken(fields),
    })
}
