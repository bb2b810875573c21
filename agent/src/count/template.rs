//! Chat templates: from messages to the text that an engine tokenizes.
//!
//! Owns: rendering as Hugging Face's `apply_chat_template` does it (whitespace, functions, Python's ways of writing values),
//! within bounds. Refuses: what goes into a template (`prompt`).

use super::python;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest template.
const MAX_TEMPLATE: usize = 1 << 20;
/// Work that one rendering may do: about an instruction, or 64 bytes, each.
const FUEL: u64 = 20_000_000;
const NAME: &str = "chat";

/// A template that was parsed.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    /// It goes through the parts of a message's content.
    parts: bool,
    /// It writes the arguments of tool calls as JSON.
    arguments_as_json: bool,
    developers: bool,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Where it can't be understood.
    pub(super) fn new(source: &str) -> Result<Template, String> {
        if source.len() > MAX_TEMPLATE {
            return Err(format!("it is longer than {MAX_TEMPLATE} bytes"));
        }
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .build()
                .map_err(|error| error.to_string())?,
        );
        environment.set_fuel(Some(FUEL));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|out, _, value| out.write_str(&python::text(value)).map_err(Error::from));
        environment.add_filter("tojson", |value: &Value, options: Kwargs| {
            let indent: Option<usize> = options.get("indent")?;
            // What else Python takes does not change what templates write.
            let _: (Option<Value>, Option<Value>, Option<Value>) = (
                options.get("ensure_ascii")?,
                options.get("separators")?,
                options.get("sort_keys")?,
            );
            options.assert_all_used()?;
            python::json(value, indent.map(|indent| indent.min(16)))
        });
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            python::date(&format, now.as_secs() as i64)
        });
        environment
            .add_template_owned(NAME, without_generation_marks(source))
            .map_err(|error| error.to_string())?;
        Ok(Template {
            environment,
            parts: goes_through_parts(source),
            arguments_as_json: source.contains("arguments") && source.contains("tojson"),
            developers: source.contains("\"developer\"") || source.contains("'developer'"),
        })
    }

    /// It goes through the parts of a message's content.
    pub(super) fn takes_parts(&self) -> bool {
        self.parts
    }

    /// It writes the arguments of tool calls as JSON, so they must not be a text that is JSON already.
    pub(super) fn takes_arguments(&self) -> bool {
        self.arguments_as_json
    }

    /// It knows the role of a developer.
    pub(super) fn knows_developers(&self) -> bool {
        self.developers
    }

    /// The text for these values.
    ///
    /// # Errors
    /// The template refused them, or took too long.
    pub(super) fn render(&self, values: Value) -> Result<String, String> {
        let template = self.environment.get_template(NAME).map_err(|e| e.to_string())?;
        template.render(values).map_err(|error| {
            // The error's own text may hold what was said in the messages.
            format!("the chat template failed: {}", error.kind())
        })
    }
}

/// `{% generation %}` marks what an assistant said, for training; the text is the same without.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else {
            break;
        };
        let (before, tag, after) = (
            &rest[..start],
            &rest[start..start + length + 2],
            &rest[start + length + 2..],
        );
        out.push_str(before);
        let inner = &tag[2..tag.len() - 2];
        match inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+') {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Whether there is a loop over `content`, or over the content of a message: then vLLM gives it parts instead of a text.
fn goes_through_parts(source: &str) -> bool {
    source.split("{%").skip(1).any(|tag| {
        let tag = tag.split("%}").next().unwrap_or("");
        let tag = tag.trim_start_matches(['-', '+']).trim();
        let Some(over) = tag
            .strip_prefix("for ")
            .and_then(|tag| tag.split_once(" in "))
            .map(|(_, over)| over.trim_start())
        else {
            return false;
        };
        let end = over
            .find(|c: char| c.is_whitespace() || c == '|' || c == '-' || c == '+')
            .unwrap_or(over.len());
        let over = &over[..end];
        over == "content"
            || over.ends_with(".content")
            || over.ends_with("['content']")
            || over.ends_with("[\"content\"]")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, values: &str) -> Result<String, String> {
        let values: Value = serde_json::from_str(values).expect("JSON");
        Template::new(template)?.render(values)
    }

    const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\n{% if add_generation_prompt %}\n  {{ '<|im_start|>assistant\n' }}\n{%- endif %}\n";

    #[test]
    fn white_space_is_that_of_hugging_face() {
        let text = render(
            CHATML,
            r#"{"messages":[{"role":"user","content":"hi <&> \"'"}],"add_generation_prompt":true}"#,
        );
        assert_eq!(
            text.as_deref(),
            Ok("<|im_start|>user\nhi <&> \"'<|im_end|>\n  <|im_start|>assistant\n")
        );
    }

    #[test]
    fn what_templates_of_real_models_do_works() {
        for (template, values, expected) in [
            (
                "{{ x.strip() ~ y.split('</think>')[-1].lstrip('\n') }}",
                r#"{"x":" a ","y":"t</think>\n\nb"}"#,
                "ab",
            ),
            (
                "{%- set ns = namespace(found=false) %}{% for m in ms[::-1] %}{% set ns.found = m.r == 'a' %}{% endfor %}{{ ns.found }}",
                r#"{"ms":[{"r":"a"}]}"#,
                "True",
            ),
            (
                "{{ t | tojson }} {{ t | tojson(indent=2) | length }}",
                r#"{"t":{"b":[1],"a":"é"}}"#,
                r#"{"b": [1], "a": "é"} 34"#,
            ),
            (
                "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|items %}{{ loop.index0 }}{% endfor %}",
                r#"{"d":{"z":1,"a":null}}"#,
                "z=1;a=None;01",
            ),
            (
                "{% if tools is defined and tools %}x{% else %}{{ none_there }}y{% endif %}",
                r#"{"tools":null}"#,
                "y",
            ),
            (
                "{%- macro f(a, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ f('x') }}{{ f('y', b=2) }}",
                "{}",
                "x1y2",
            ),
            (
                "{% generation %}a{% endgeneration %}{%- generation -%} b {%- endgeneration -%} c",
                "{}",
                "abc",
            ),
            (
                "{% for m in ms %}{% if loop.first %}{% continue %}{% endif %}{{ m }}{% break %}{% endfor %}",
                r#"{"ms":["a","b","c"]}"#,
                "b",
            ),
            (
                "{{ ms | selectattr('r', 'equalto', 'u') | map(attribute='c') | join(',') }}",
                r#"{"ms":[{"r":"u","c":"1"},{"r":"a","c":"2"},{"r":"u","c":"3"}]}"#,
                "1,3",
            ),
            (
                "{{ m.get('x', 'd') }}{{ 'b' in m }}{{ m.b is string }}{{ m.b is not none }}",
                r#"{"m":{"b":"c"}}"#,
                "dTrueTrueTrue",
            ),
            ("{{ strftime_now('%%') }}", "{}", "%%"),
        ] {
            assert_eq!(render(template, values).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn what_a_template_refuses_is_told_without_its_text() {
        let error = render("{{ raise_exception('no ' + secret) }}", r#"{"secret":"word"}"#);
        assert_eq!(
            error,
            Err("the chat template failed: invalid operation".to_owned())
        );
        assert!(render("{% for x in y %}", "{}").is_err());
        assert!(Template::new(&"x".repeat(MAX_TEMPLATE + 1)).is_err());
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(render(endless, "{}").is_err());
    }

    #[test]
    fn loops_over_content_are_seen() {
        for (template, parts) in [
            ("{% for m in messages %}{{ m.content }}{% endfor %}", false),
            ("{% for part in message['content'] %}x{% endfor %}", true),
            (
                "{%- for part in m.content|selectattr('type') -%}x{% endfor %}",
                true,
            ),
            ("{% for part in content %}x{% endfor %}", true),
            ("{% for x in m.contents %}x{% endfor %}", false),
            ("{# for x in content #}", false),
        ] {
            assert_eq!(goes_through_parts(template), parts, "{template}");
        }
    }
}
