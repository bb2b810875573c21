//! Texts of many languages and kinds, of any length, the same for the same seed.
//!
//! Owns: what they say. Refuses: random characters: a tokenizer's counts differ most where words are real.

use crate::load::SplitMix;

/// A kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    English,
    Chinese,
    Code,
    Emoji,
    Tools,
    Turns,
    German,
    Russian,
    Japanese,
    Korean,
    Arabic,
    Numbers,
}

impl Class {
    pub(super) const ALL: [Class; 12] = [
        Class::English,
        Class::Chinese,
        Class::Code,
        Class::Emoji,
        Class::Tools,
        Class::Turns,
        Class::German,
        Class::Russian,
        Class::Japanese,
        Class::Korean,
        Class::Arabic,
        Class::Numbers,
    ];

    /// Characters that make some 3,000 tokens, at most: engines refuse prompts beyond their context.
    pub(super) const fn characters_of_3000_tokens(self) -> usize {
        match self {
            Class::English => 11_000,
            Class::Code | Class::Tools => 8_000,
            Class::German => 6_500,
            Class::Russian | Class::Numbers => 3_500,
            Class::Turns => 2_500,
            Class::Chinese | Class::Japanese | Class::Arabic => 2_000,
            Class::Emoji | Class::Korean => 1_500,
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Class::English | Class::Tools | Class::Turns => ENGLISH,
            Class::Chinese => CHINESE,
            Class::Code => CODE,
            Class::Emoji => EMOJI,
            Class::German => GERMAN,
            Class::Russian => RUSSIAN,
            Class::Japanese => JAPANESE,
            Class::Korean => KOREAN,
            Class::Arabic => ARABIC,
            Class::Numbers => NUMBERS,
        }
    }
}

const ENGLISH: &str = "It's a common mistake to think that a faster server is always the answer; most requests wait because others came first. Dr. Smith's team measured 1,024 of them on a Tuesday night, and what they'd seen wasn't quite what the documentation promised: the queue grew, the prefill stalled, and nobody could say why. \"We'll look again,\" she said, \"when the load is real.\" So they wrote the numbers down, compared them with last year's, and found that the old machine (which had been repaired twice) answered sooner than the new one.\n\nFurthermore, unbelievably long words such as internationalization or counterrevolutionaries are rarer than people assume. ";
const CHINESE: &str = "今天天气很好，我们一起去公园散步吧。大语言模型的推理服务需要同时处理许多请求，排队时间和首个词元的延迟是最重要的两个指标。“你看，”他说，“服务器并不慢，只是前面的人太多了。”上个月的账单一共是一万两千三百元，其中输入部分占了六成。繁體字也會出現：這是一個測試，請不要緊張！";
const CODE: &str = "fn count(text: &str) -> Result<u64, Error> {\n    let mut total = 0;\n    for (i, line) in text.lines().enumerate() {\n        if line.trim_start().starts_with(\"//\") { continue; }\n\t\ttotal += line.len() as u64 * 2; // tabs too\n    }\n    Ok(total)\n}\n\ndef quicksort(xs):\n    if len(xs) <= 1:\n        return xs\n    pivot = xs[len(xs) // 2]\n    return quicksort([x for x in xs if x < pivot]) + [x for x in xs if x == pivot]\n\n<div class=\"row\"><a href='https://example.com/?q=a&b=%20'>x</a></div>\n{\"key\": [1, 2.5e-3, null, true], \"nested\": {\"a_b\": \"c-d\"}}\nSELECT id, name FROM users WHERE age >= 18 AND deleted_at IS NULL;\n";
const EMOJI: &str =
    "🙂 What a day! 🚀🔥🎉 👩‍💻👨‍👩‍👧‍👦 says: 👍🏽👍🏿 100% ✅ ❤️‍🔥 🇫🇷🇩🇪🇯🇵 ☀️→🌧️ … 😂😂😂 \u{200d}end 🤷‍♀️ 1️⃣2️⃣3️⃣ ";
const GERMAN: &str = "Die Donaudampfschifffahrtsgesellschaft hat gestern mitgeteilt, dass übermäßige Wartezeiten künftig ausgeschlossen seien. Wer größere Mengen bestellt, muss allerdings früher aufstehen, denn die Höchstgeschwindigkeit der Anlage ist begrenzt. Außerdem wären zusätzliche Prüfungen nötig, bevor man die Ergebnisse veröffentlichen könnte. ";
const RUSSIAN: &str = "Сегодня утром сервер снова отвечал медленно, потому что очередь запросов выросла втрое. Мы проверили журналы и обнаружили, что большую часть времени занимает чтение длинных подсказок. «Посмотрим ещё раз завтра», — сказал инженер и закрыл ноутбук. ";
const JAPANESE: &str = "今日はとても良い天気なので、公園を散歩しましょう。サーバーが遅いのではなく、前に並んでいる人が多いだけです。「もう一度測ってみます」と彼女は言いました。カタカナとひらがなと漢字が混ざった文章をトークンに分けるのは意外と難しい。";
const KOREAN: &str = "오늘은 날씨가 아주 좋아서 공원에 산책하러 갑시다. 서버가 느린 것이 아니라 앞에 기다리는 사람이 많을 뿐입니다. 다시 한번 측정해 보겠다고 그녀가 말했다. ";
const ARABIC: &str = "الطقس جميل اليوم، فلنذهب إلى الحديقة معًا. الخادم ليس بطيئًا، لكن الطابور طويل جدًا في هذا الوقت من النهار. قالت المهندسة إنها ستقيس الزمن مرة أخرى غدًا. ";
const NUMBERS: &str = "2026-11-30 04:13:10 INFO 127.0.0.1:8080 200 1437 ms 0x7ffd3a2b 3.14159265 1e-9 +49 30 1234567 $1,299.99 42% #17 v1.2.3-rc4\n| a | b |\n|---|---|\n|  12 | 3456 |\n";

/// Makes texts.
pub(super) struct Texts(SplitMix);

impl Texts {
    pub(super) fn new(seed: u64) -> Texts {
        Texts(SplitMix(seed))
    }

    /// A text of so many characters, from any place on, around again where it is longer than what there is.
    pub(super) fn text(&mut self, class: Class, characters: usize) -> String {
        let source: Vec<char> = class.source().chars().collect();
        let start = self.0.below(source.len() as u64) as usize;
        source
            .iter()
            .cycle()
            .skip(start)
            .take(characters.max(1))
            .collect()
    }
}
