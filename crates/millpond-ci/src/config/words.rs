//! Splits a command into words as a POSIX shell does, without expanding anything: Nodepool starts commands this way.

/// The words of a command.
pub fn split(command: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                let quoted = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => quoted.push(letter),
                        None => return Err("has a quotation that does not end"),
                    }
                }
            }
            '"' => double_quoted(&mut letters, word.get_or_insert_default())?,
            '\\' => match letters.next() {
                Some(letter) => word.get_or_insert_default().push(letter),
                None => return Err("ends with a backslash"),
            },
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

fn double_quoted(letters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), &'static str> {
    loop {
        match letters.next() {
            Some('"') => return Ok(()),
            Some('\\') => match letters.next() {
                Some(letter @ ('"' | '\\')) => word.push(letter),
                Some(letter) => word.extend(['\\', letter]),
                None => return Err("has a quotation that does not end"),
            },
            Some(letter) => word.push(letter),
            None => return Err("has a quotation that does not end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_python() {
        // Expected values are those of `shlex.split`.
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("  a\tb\n c ", &["a", "b", "c"]),
            ("a 'b c' d", &["a", "b c", "d"]),
            (r#"a "b \"c\" \d" e"#, &["a", r#"b "c" \d"#, "e"]),
            (r"a\ b '\' ''", &["a b", r"\", ""]),
            ("--qemu-img-options 'compat=0.10' -o x", &["--qemu-img-options", "compat=0.10", "-o", "x"]),
            ("a'b'\"c\"d", &["abcd"]),
            ("a #b", &["a", "#b"]),
        ];
        for (command, expected) in cases {
            assert_eq!(split(command).unwrap(), *expected, "{command}");
        }
        for broken in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(broken).is_err(), "{broken}");
        }
    }
}
