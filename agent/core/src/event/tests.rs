//! Records are decoded field by field, and impossible ones refused.

use super::*;

fn data(captured: u32, len: u32, payload: &[u8]) -> Vec<u8> {
    let header = RecordHeader {
        ts_ns: 7,
        conn_id: 9,
        offset: 100,
        kind: RecordKind::Data as u16,
        captured,
        len,
        dir_role: RecordHeader::pack(Direction::In as u8, Role::Accepted as u8),
        transport: Transport::Tcp as u8,
        ..Default::default()
    };
    let mut record = header.to_bytes().to_vec();
    record.extend_from_slice(payload);
    record
}

#[test]
fn a_data_record_keeps_its_true_length_and_only_what_was_captured() {
    let record = data(3, 10, b"abc\0\0\0");
    let event = Event::decode(&record).expect("valid");
    assert_eq!(event.at, 7);
    let EventKind::Data {
        socket,
        direction,
        offset,
        len,
        bytes,
        ..
    } = event.kind
    else {
        panic!("not data")
    };
    assert_eq!(
        (socket.conn, direction, offset, len, bytes),
        (ConnId(9), Direction::In, 100, 10, &b"abc"[..])
    );
}

#[test]
fn a_close_tells_how_much_went_each_way() {
    let header = RecordHeader {
        kind: RecordKind::Close as u16,
        offset: 1 << 40,
        len: 7,
        extra: 1,
        ..Default::default()
    };
    let EventKind::Close(closed) = Event::decode(&header.to_bytes()).expect("valid").kind else {
        panic!("not a close")
    };
    assert_eq!((closed.bytes_in, closed.bytes_out), ((1 << 32) + 7, 1 << 40));
}

#[test]
fn a_call_has_its_arguments_and_what_was_captured() {
    let mut header = RecordHeader {
        kind: RecordKind::Call as u16,
        ts_ns: 9_000,
        offset: 2_000,
        conn_id: 0xffff_ffff_ffff_fffe,
        fd: Function::LlamaTokenize as u32,
        captured: 34,
        len: 34,
        tgid: 5,
        tid: 6,
        ..Default::default()
    };
    let record = |header: &RecordHeader| {
        let mut record = header.to_bytes().to_vec();
        record.extend((1..=4u64).flat_map(u64::to_le_bytes));
        record.extend(b"xy\0\0");
        record
    };
    let bytes = record(&header);
    let EventKind::Call(call) = Event::decode(&bytes).expect("valid").kind else {
        panic!("not a call")
    };
    let expected = Call {
        tgid: 5,
        tid: 6,
        function: Function::LlamaTokenize,
        begin: 2_000,
        end: 9_000,
        args: [1, 2, 3, 4],
        ret: Some(0xffff_ffff_ffff_fffe),
        bytes: b"xy",
    };
    assert_eq!(call, expected);
    header.flags = record_flag::ENTERED;
    let bytes = record(&header);
    assert!(
        matches!(Event::decode(&bytes).expect("valid").kind, EventKind::Call(call) if call.ret.is_none())
    );
    header.captured = 31;
    assert!(matches!(
        Event::decode(&record(&header)),
        Err(DecodeError::Length { captured: 31, .. })
    ));
    (header.captured, header.fd) = (32, 0xffff);
    let unknown = DecodeError::Unknown {
        field: "function",
        value: 0xffff,
    };
    assert_eq!(Event::decode(&record(&header)).unwrap_err(), unknown);
}

#[test]
fn a_read_tells_when_its_first_byte_had_arrived_where_the_kernel_saw_it() {
    let arrived = |flags: u16, extra: u32| {
        let mut record = data(3, 3, b"abc");
        record[0..8].copy_from_slice(&5_000_000u64.to_le_bytes());
        record[26..28].copy_from_slice(&flags.to_le_bytes());
        record[36..40].copy_from_slice(&extra.to_le_bytes());
        match Event::decode(&record).expect("valid").kind {
            EventKind::Data { arrived, .. } => arrived,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(arrived(record_flag::ARRIVED, 2_000), Some(3_000_000));
    assert_eq!(
        arrived(record_flag::ARRIVED, u32::MAX),
        Some(0),
        "never before the clock began"
    );
    assert_eq!(arrived(0, 2_000), None);
}

#[test]
fn impossible_records_are_refused() {
    assert_eq!(Event::decode(&[0; 10]).unwrap_err(), DecodeError::Short);
    assert!(matches!(
        Event::decode(&data(4, 10, b"abc")).unwrap_err(),
        DecodeError::Length { .. }
    ));
    assert!(matches!(
        Event::decode(&data(3, 2, b"abc")).unwrap_err(),
        DecodeError::Length { .. }
    ));
    assert!(matches!(
        Event::decode(&data(1, 0, b"abc")).unwrap_err(),
        DecodeError::Length { .. }
    ));
    let mut record = data(0, 0, b"");
    record[24] = 0xff;
    assert_eq!(
        Event::decode(&record).unwrap_err(),
        DecodeError::Unknown {
            field: "kind",
            value: 0xff
        }
    );
    let mut record = data(0, 0, b"");
    record[62] = 0xf1;
    assert_eq!(
        Event::decode(&record).unwrap_err(),
        DecodeError::Unknown {
            field: "role",
            value: 15
        }
    );
}
