//! Records from the ring: what decodes is consistent with its header, and does not depend on what follows it.
#![no_main]

use infertap_abi::{Direction, HEADER_LEN, RecordHeader, RecordKind};
use infertap_core::event::{Event, EventKind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|record: &[u8]| {
    let decoded = Event::decode(record);
    let Some(header) = RecordHeader::read(record) else {
        assert!(record.len() < HEADER_LEN && decoded.is_err());
        return;
    };
    assert_eq!(header.to_bytes()[..], record[..HEADER_LEN]);
    let longer = [record, b"left over from the ring"].concat();
    match decoded {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            // More bytes can only help a record that was too short.
            if (header.captured as usize) <= record.len() - HEADER_LEN {
                assert!(Event::decode(&longer).is_err());
            }
        }
        Ok(event) => {
            assert_eq!(event.at, header.ts_ns);
            assert!(RecordKind::try_from(header.kind).is_ok());
            let again = Event::decode(&longer).expect("it decoded without the rest");
            assert_eq!(format!("{event:?}"), format!("{again:?}"));
            if let EventKind::Data {
                bytes,
                len,
                direction,
                ..
            } = event.kind
            {
                assert!(bytes.len() <= len as usize && direction != Direction::None);
                assert_eq!(bytes, &record[HEADER_LEN..HEADER_LEN + header.captured as usize]);
                if !bytes.is_empty() {
                    let cut = &record[..HEADER_LEN + bytes.len() - 1];
                    assert!(Event::decode(cut).is_err(), "a record without its last byte");
                }
            }
        }
    }
});
