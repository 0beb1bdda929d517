//! Bootstrap tokens in what commands print: status and logs are read by more people than may join machines.

/// Letters of a bootstrap token before and after its dot.
const TOKEN: (usize, usize) = (6, 16);

/// The text with `******` for the secret part of every bootstrap token.
pub fn secrets(text: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (mut shown, mut begin) = (String::with_capacity(text.len()), 0);
    for (dot, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'.') {
        let before = bytes[begin..dot].iter().rev().take_while(|byte| is_word(**byte)).count();
        let after = bytes[dot + 1..].iter().take_while(|byte| is_word(**byte)).count();
        if before == TOKEN.0 && after == TOKEN.1 {
            shown.push_str(&text[begin..=dot]);
            shown.push_str("******");
            begin = dot + 1 + after;
        }
    }
    shown.push_str(&text[begin..]);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_are_hidden() {
        let line = "kubeadm join --token abcdef.0123456789abcdef v1.34.1 ünder.x abcdef.0123456789abcdef!";
        assert_eq!(secrets(line), "kubeadm join --token abcdef.****** v1.34.1 ünder.x abcdef.******!");
        assert_eq!(secrets("file.tar.gz .. abcdefg.0123456789abcdef"), "file.tar.gz .. abcdefg.0123456789abcdef");
    }
}
