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

/// Longer than what decides that they are secrets.
#[test]
fn nothing_is_left_of_a_long_value() {
    let value = "aB3dE7".repeat(2_000);
    for (text, expected) in [
        (
            format!("https://h/p?x=1&token={value}&y=2 next"),
            "https://h/p?x=1&token=[KEY]&y=2 next",
        ),
        (format!("?sig={value}"), "?sig=[KEY]"),
        (format!("Authorization: {value}; x"), "Authorization: [KEY]; x"),
        (format!("run --api-key {value} now"), "run --api-key [KEY] now"),
        (format!("curl -u bob:{value} h"), "curl -u [KEY] h"),
        (format!("密码{value}。"), "密码[KEY]。"),
        (format!("password={value}"), "password=[KEY]"),
    ] {
        assert_eq!(redacted(&text), expected);
    }
}
