//! Links from a request to those that it stood still for.
//!
//! Owns: which, and how many. Refuses: finding them (the core's diagnosis).

use super::attributes::Attributes;
use super::ids::from_hex;
use crate::store::tables::record::KeptRecord;
use opentelemetry_proto::tonic::trace::v1::span::Link;

/// Links of a span.
const MOST: usize = 8;

/// To the spans of the requests whose prompts stood in the way, the worst first; those whose ids are known.
pub(super) fn links(kept: &KeptRecord) -> Vec<Link> {
    let by = kept
        .record
        .diagnosis
        .iter()
        .flat_map(|diagnosis| &diagnosis.interference_by);
    let link = |blamed: &infertap_core::Blamed| {
        let mut attributes = Attributes::default();
        attributes.text("infertap.link", "interference");
        attributes.number("infertap.interference_seconds", Some(blamed.seconds));
        Some(Link {
            trace_id: from_hex::<16>(blamed.trace_id.as_deref()?)?.to_vec(),
            span_id: from_hex::<8>(blamed.id.as_deref()?)?.to_vec(),
            attributes: attributes.0,
            ..Link::default()
        })
    };
    by.filter_map(link).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::testing::kept;
    use infertap_core::Diagnosis;

    #[test]
    fn who_is_known_is_linked_to() {
        let mut kept = kept("00000000000000a1");
        let of = |id: Option<&str>, trace_id: Option<&str>, seconds| serde_json::json!({"id": id, "response_id": "r", "trace_id": trace_id, "seconds": seconds});
        let (id, trace) = ("00000000000000b2", "0af7651916cd43dd8448eb211c80319c");
        let mut by = vec![
            of(Some(id), Some(trace), 0.5),
            of(None, None, 0.25),
            of(Some(id), Some(""), 0.25),
        ];
        by.extend((0..20).map(|_| of(Some(id), Some(trace), 0.125)));
        let diagnosis = serde_json::json!({"interference_s": 1.5, "interference_by": by});
        let diagnosis: Diagnosis = serde_json::from_value(diagnosis).expect("a diagnosis");
        kept.record.diagnosis = Some(diagnosis);
        let links = links(&kept);
        assert_eq!(links.len(), MOST);
        assert_eq!(links[0].span_id, 0xb2_u64.to_be_bytes());
        assert_eq!(
            links[0].trace_id,
            0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes()
        );
    }
}
