//! `_bulk`: lines of actions and documents, each with an answer of its own.
//!
//! Owns: their parsing, and what is done with each. Refuses: `update` and `delete`, which nothing here sends.

use super::mapping::Problem;
use super::{Elastic, Reply, Request, State, failure, lock, unsupported};
use serde_json::{Map, Value, json};

/// Longest id, bytes.
const MAX_ID: usize = 512;

struct Action {
    create: bool,
    index: String,
    id: String,
    document: Value,
}

impl Elastic {
    pub(super) fn bulk(&self, request: &Request, body: &[u8], index: Option<&str>) -> Reply {
        let kind = request
            .header("content-type")
            .split(';')
            .next()
            .unwrap_or_default();
        if !["application/x-ndjson", "application/json"].contains(&kind.trim()) {
            return unsupported(request);
        }
        let actions = match parse(body, index) {
            Ok(actions) => actions,
            Err(problem) => return failure(400, problem),
        };
        let mut state = lock(&self.state);
        let mut errors = false;
        let items: Vec<Value> = actions
            .into_iter()
            .map(|action| {
                let name = if action.create { "create" } else { "index" };
                let mut item = json!({"_index": action.index, "_id": action.id});
                match self.act(&mut state, action) {
                    Ok(()) => {
                        item["status"] = 201.into();
                        item["result"] = "created".into();
                    }
                    Err((status, (kind, reason))) => {
                        errors = true;
                        item["status"] = status.into();
                        item["error"] = json!({"type": kind, "reason": reason});
                    }
                }
                json!({name: item})
            })
            .collect();
        Reply::json(200, &json!({"took": 1, "errors": errors, "items": items}))
    }

    fn act(&self, state: &mut State, action: Action) -> Result<(), (u16, Problem)> {
        if state.overloaded > 0 {
            state.overloaded -= 1;
            let reason = "rejected execution of coordinating operation".to_owned();
            return Err((429, ("es_rejected_execution_exception", reason)));
        }
        let index = state.index(&action.index, &self.settings)?;
        let wrong = |kind, reason: &str| Err((400, (kind, reason.to_owned())));
        if index.data_stream && !action.create {
            return wrong(
                "illegal_argument_exception",
                "only write ops with an op_type of create are allowed in data streams",
            );
        }
        let Value::Object(document) = action.document else {
            return wrong("document_parsing_exception", "failed to parse: not an object");
        };
        if index.data_stream
            && !document
                .get("@timestamp")
                .is_some_and(|at| at.is_string() || at.is_i64())
        {
            return wrong(
                "document_parsing_exception",
                "[1:2] failed to parse: data stream timestamp field [@timestamp] is missing",
            );
        }
        index.mapping.take(&document).map_err(|problem| (400, problem))?;
        if action.create && index.documents.contains_key(&action.id) {
            let id = &action.id;
            let reason = format!("[{id}]: version conflict, document already exists (current version [1])");
            return Err((409, ("version_conflict_engine_exception", reason)));
        }
        index.documents.insert(action.id, Value::Object(document));
        Ok(())
    }
}

fn parse(body: &[u8], index: Option<&str>) -> Result<Vec<Action>, Problem> {
    if body.is_empty() {
        return Err(("parse_exception", "request body is required".to_owned()));
    }
    if !body.ends_with(b"\n") {
        let reason = "The bulk request must be terminated by a newline [\\n]";
        return Err(("illegal_argument_exception", reason.to_owned()));
    }
    let malformed = |line: usize, what: &str| {
        let reason = format!("Malformed action/metadata line [{line}], {what}");
        ("illegal_argument_exception", reason)
    };
    let lines: Vec<&[u8]> = body[..body.len() - 1].split(|byte| *byte == b'\n').collect();
    let mut actions = Vec::new();
    let mut rest = (1..).zip(lines);
    while let Some((number, line)) = rest.next() {
        if line.is_empty() {
            continue;
        }
        let action: Map<String, Value> = serde_json::from_slice(line)
            .map_err(|_| malformed(number, "expected START_OBJECT but found something else"))?;
        let one = (action.len() == 1).then(|| action.into_iter().next()).flatten();
        let (verb, meta) = one.ok_or_else(|| malformed(number, "expected one action"))?;
        if !["create", "index"].contains(&&*verb) {
            let what = format!("expected field [create], [delete], [index] or [update] but found [{verb}]");
            return Err(malformed(number, &what));
        }
        let meta = meta
            .as_object()
            .ok_or_else(|| malformed(number, "expected START_OBJECT after the action"))?;
        let known = ["_index", "_id", "routing", "require_alias", "pipeline", "op_type"];
        if let Some(key) = meta.keys().find(|key| !known.contains(&&***key)) {
            let reason = format!("Action/metadata line [{number}] contains an unknown parameter [{key}]");
            return Err(("illegal_argument_exception", reason));
        }
        let text = |key: &str| meta.get(key).and_then(Value::as_str);
        let Some(index) = text("_index").or(index) else {
            return Err((
                "action_request_validation_exception",
                "index is missing;".to_owned(),
            ));
        };
        let id = text("_id").map_or_else(|| format!("made-{number}"), ToOwned::to_owned);
        if id.is_empty() || id.len() > MAX_ID {
            let reason = format!("id [{id}] is too long or empty, must be no longer than {MAX_ID} bytes");
            return Err(("action_request_validation_exception", reason));
        }
        let Some((_, document)) = rest.next() else {
            let reason = "Validation Failed: 1: no requests added;".to_owned();
            return Err(("action_request_validation_exception", reason));
        };
        actions.push(Action {
            create: verb == "create",
            index: index.to_owned(),
            id,
            document: serde_json::from_slice(document).unwrap_or(Value::Null),
        });
    }
    if actions.is_empty() {
        return Err((
            "action_request_validation_exception",
            "Validation Failed: 1: no requests added;".to_owned(),
        ));
    }
    Ok(actions)
}
