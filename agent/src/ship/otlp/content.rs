//! What a request and its answer said, as attributes of its span.
//!
//! Owns: their names, and how much a span may carry. Refuses: what is kept and how it is redacted (`content`).

use super::attributes::Attributes;
use crate::store::tables::record::KeptRecord;
use infertap_core::content::Side;

/// Bytes of a side as JSON: receivers refuse spans of megabytes, and a record that is refused is lost whole.
const MOST: usize = 256 << 10;

/// Adds the kept content, as OpenTelemetry's JSON of messages.
pub(super) fn add(kept: &KeptRecord, attributes: &mut Attributes) {
    let Some(content) = &kept.content else {
        return;
    };
    let content = content.get();
    attributes.text("infertap.content.mode", content.mode.as_str());
    let sides = [("input", &content.input), ("output", &content.output)];
    for (name, side) in sides {
        add_side(name, side, attributes);
    }
}

fn add_side(name: &str, side: &Side, attributes: &mut Attributes) {
    if let Some(hash) = &side.hash {
        attributes.text(&format!("infertap.{name}.hash"), hash);
    }
    if side.messages.is_empty() {
        return;
    }
    match serde_json::to_string(&side.messages) {
        Ok(json) if json.len() <= MOST => attributes.text(&format!("gen_ai.{name}.messages"), json),
        _ => attributes.text(&format!("infertap.{name}.omitted"), "too_large"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::testing::kept;
    use infertap_core::content::{Message, Mode, Part, PartKind, Transcript};

    fn told(content: Transcript) -> Vec<String> {
        let mut kept = kept("00000000000000a1");
        kept.content = Some(content.into());
        let mut attributes = Attributes::default();
        add(&kept, &mut attributes);
        let keys = attributes.0.into_iter().map(|attribute| attribute.key);
        keys.collect()
    }

    #[test]
    fn messages_are_told_and_not_more_than_fits() {
        let side = |text: String| Side {
            messages: vec![Message {
                role: "user".to_owned(),
                parts: vec![Part {
                    kind: PartKind::Text,
                    name: None,
                    content: text,
                }],
            }],
            ..Side::default()
        };
        let mut content = Transcript {
            mode: Mode::Redacted,
            input: side("a".repeat(MOST)),
            output: side("short".to_owned()),
            ..Transcript::default()
        };
        assert_eq!(
            told(content.clone()),
            [
                "infertap.content.mode",
                "infertap.input.omitted",
                "gen_ai.output.messages"
            ]
        );
        content.mode = Mode::Hash;
        (content.input, content.output) = (Side::default(), Side::default());
        content.input.hash = Some("ab".to_owned());
        assert_eq!(told(content), ["infertap.content.mode", "infertap.input.hash"]);
    }
}
