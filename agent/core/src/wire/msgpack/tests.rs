//! Values of every width, what does not fit, skipping.

use super::*;
use proptest::prelude::*;

#[test]
fn values_of_every_width_are_read() {
    let ints: &[(&[u8], i64)] = &[
        (&[0x07], 7),
        (&[0xff], -1),
        (&[0xcc, 200], 200),
        (&[0xcd, 1, 0], 256),
        (&[0xce, 0, 1, 0, 0], 65_536),
        (&[0xcf, 0, 0, 0, 1, 0, 0, 0, 0], 1 << 32),
        (&[0xd0, 0x80], -128),
        (&[0xd1, 0xff, 0], -256),
        (&[0xd2, 0xff, 0xff, 0, 0], -65_536),
        (&[0xd3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], -(1 << 32)),
    ];
    for (bytes, value) in ints {
        let mut reader = Reader::new(bytes);
        assert_eq!(reader.int(), Ok(*value));
        assert!(reader.rest().is_empty());
    }
    assert_eq!(
        Reader::new(&[0xcf, 255, 0, 0, 0, 0, 0, 0, 0]).int(),
        Err(MsgpackError::Range)
    );
    assert_eq!(
        Reader::new(&[0xcb, 0x3f, 0xd0, 0, 0, 0, 0, 0, 0]).float(),
        Ok(0.25)
    );
    assert_eq!(Reader::new(&[0xca, 0x3e, 0x80, 0, 0]).float(), Ok(0.25));
    assert_eq!(Reader::new(&[0xd9, 2, b'h', b'i']).str(), Ok("hi"));
    assert_eq!(Reader::new(&[0xa2, b'h', b'i']).str(), Ok("hi"));
    assert_eq!(Reader::new(&[0xc4, 2, 8, 9]).bin(), Ok(&[8, 9][..]));
    assert_eq!(Reader::new(&[0xc7, 2, 0xff, 8, 9]).ext(), Ok((-1, &[8, 9][..])));
    assert_eq!(Reader::new(&[0xd5, 1, 8, 9]).ext(), Ok((1, &[8, 9][..])));
    assert_eq!(Reader::new(&[0xdc, 1, 2]).array(), Ok(258));
    assert_eq!(Reader::new(&[0x83]).map(), Ok(3));
    assert_eq!(Reader::new(&[0xc3]).bool(), Ok(true));
    assert_eq!(Reader::new(&[0xc0]).nil(), Ok(true));
    assert_eq!(Reader::new(&[0xc2]).nil(), Ok(false));
}

#[test]
fn what_does_not_fit_is_told() {
    let wanted = |wanted, found| Some(MsgpackError::Kind { wanted, found });
    assert_eq!(Reader::new(&[0xc0]).int().err(), wanted(Kind::Int, Kind::Nil));
    assert_eq!(Reader::new(&[0x01]).float().err(), wanted(Kind::Float, Kind::Int));
    assert_eq!(Reader::new(&[0xc1]).peek(), Err(MsgpackError::Reserved));
    assert_eq!(Reader::new(&[0xc1]).skip(), Err(MsgpackError::Reserved));
    assert_eq!(Reader::new(&[0xa2, b'h']).str(), Err(MsgpackError::Truncated));
    assert_eq!(Reader::new(&[0xc4, 2, 8]).bin(), Err(MsgpackError::Truncated));
    assert_eq!(Reader::new(&[0xc7, 2, 1, 8]).ext(), Err(MsgpackError::Truncated));
    assert_eq!(Reader::new(&[0xa1, 0xff]).str(), Err(MsgpackError::NotUtf8));
    assert_eq!(Reader::new(&[]).peek(), Err(MsgpackError::Truncated));
    assert_eq!(
        Reader::new(&[0xdd, 255, 255, 255, 255, 0]).skip(),
        Err(MsgpackError::Truncated)
    );
}

#[test]
fn skipping_ends_behind_the_value() {
    let value: &[u8] = &[
        0x93, 0x82, 0xa1, b'k', 0xc4, 2, 9, 9, 0x01, 0xd4, 5, 6, 0xc7, 1, 3, 4, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let mut bytes = value.to_vec();
    bytes.push(0x2a);
    let mut reader = Reader::new(&bytes);
    reader.skip().expect("whole");
    assert_eq!(reader.int(), Ok(42));
    for len in 0..value.len() {
        assert_eq!(
            Reader::new(&value[..len]).skip(),
            Err(MsgpackError::Truncated),
            "{len}"
        );
    }
}

#[test]
fn nesting_costs_no_stack() {
    let deep = vec![0x91; 4_000_000];
    assert_eq!(Reader::new(&deep).skip(), Err(MsgpackError::Truncated));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut reader = Reader::new(&bytes);
        while reader.skip().is_ok() {}
        for read in [
            |r: &mut Reader<'_>| r.int().is_ok(),
            |r: &mut Reader<'_>| r.float().is_ok(),
            |r: &mut Reader<'_>| r.str().is_ok(),
            |r: &mut Reader<'_>| r.bin().is_ok(),
            |r: &mut Reader<'_>| r.ext().is_ok(),
            |r: &mut Reader<'_>| r.array().is_ok(),
            |r: &mut Reader<'_>| r.map().is_ok(),
            |r: &mut Reader<'_>| r.bool().is_ok(),
        ] {
            let mut reader = Reader::new(&bytes);
            let _ = read(&mut reader);
            prop_assert!(reader.rest().len() <= bytes.len());
        }
    }
}
