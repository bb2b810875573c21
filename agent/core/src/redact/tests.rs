//! Tables beside the corpus (`tests/redaction`): single rules, limits, overlaps.

use super::*;

fn redacted(text: &str) -> String {
    Redactor::default()
        .redact(text, usize::MAX, &mut Counts::new())
        .text
        .into_owned()
}

#[test]
fn what_is_found_is_replaced() {
    for (text, expected) in [
        ("mail alice@example.com now", "mail [EMAIL] now"),
        ("请联系zhangsan@example.com.cn谢谢", "请联系[EMAIL]谢谢"),
        ("我的手机号是13812345678，请回电", "我的手机号是[PHONE]，请回电"),
        ("card 4111 1111 1111 1111 exp 12/29", "card [CARD] exp 12/29"),
        ("身份证11010519491231002X。", "身份证[ID]。"),
        ("IBAN DE89 3704 0044 0532 0130 00 please", "IBAN [IBAN] please"),
        ("password=hunter2&x=1", "password=[KEY]&x=1"),
        (
            r#"{\"text\":\"call +1 (415) 555-2671\\nbye\"}"#,
            r#"{\"text\":\"call [PHONE]\\nbye\"}"#,
        ),
        (
            "postgres://app:s3cr3t@db.example.com:5432/x",
            "postgres://[KEY]@db.example.com:5432/x",
        ),
        ("nothing to see", "nothing to see"),
    ] {
        assert_eq!(redacted(text), expected);
    }
}
