//! Parts of a type's name, as each provider of Karpenter's reads them.

use super::Provider;

/// Parts of a name; a part that the name does not have is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Naming {
    /// `m5` of `m5.large`, `n2` of `n2-standard-4`.
    pub family: String,
    /// `m`, `n`.
    pub category: String,
    /// `5`, `2`.
    pub generation: String,
    /// `large`, `4`.
    pub size: String,
    /// `standard` of `n2-standard-4`.
    pub shape: String,
}

/// Sizes that KWOK takes from a name like AWS's; otherwise the cores are the size.
const KWOK_SIZES: [&str; 6] = ["nano", "micro", "small", "medium", "large", "metal"];

/// Reads a name as the provider does.
pub fn read(provider: Provider, name: &str, cpu_milli: u64) -> Naming {
    match provider {
        Provider::Aws => aws(name),
        Provider::Gcp => gcp(name),
        Provider::Kwok => kwok(name, cpu_milli),
        Provider::Generic => Naming::default(),
    }
}

/// `<letters>[-<digits>tb]<digits>….<size>`: category, generation; family and
/// size are what stands before and after the one point.
fn aws(name: &str) -> Naming {
    let Some((family, size)) = name.split_once('.').filter(|(_, size)| !size.contains('.')) else {
        return Naming::default();
    };
    let letters = family.bytes().take_while(u8::is_ascii_lowercase).count();
    let (category, rest) = family.split_at(letters);
    let terabytes = rest.strip_prefix('-').and_then(|rest| {
        let digits = leading_digits(rest);
        rest[digits.len()..].strip_prefix("tb").filter(|_| !digits.is_empty())
    });
    let generation = leading_digits(terabytes.unwrap_or(rest));
    let known = !category.is_empty() && !generation.is_empty();
    let part = |text: &str| if known { text.to_owned() } else { String::new() };
    Naming {
        family: family.to_owned(),
        size: size.to_owned(),
        category: part(category),
        generation: part(generation),
        shape: String::new(),
    }
}

/// `<letters><digit>[letter]-<shape>-<size>[-<extra>]`, or `e2-medium`.
fn gcp(name: &str) -> Naming {
    let parts: Vec<_> = name.split('-').collect();
    let [family, shape, ..] = parts[..] else {
        return Naming::default();
    };
    let letters = family.bytes().take_while(|byte| !byte.is_ascii_digit()).count();
    let size = if parts.len() > 3 { parts[parts.len() - 2] } else { parts[parts.len() - 1] };
    Naming {
        family: family.to_owned(),
        category: family[..letters].to_owned(),
        generation: leading_digits(&family[letters..]).to_owned(),
        size: size.to_owned(),
        shape: shape.to_owned(),
    }
}

/// Family is what stands before the first point or dash, else the first letter.
fn kwok(name: &str, cpu_milli: u64) -> Naming {
    let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let size = name.split_once('.').filter(|(family, size)| {
        let count = size.strip_suffix("xlarge");
        let size_known = KWOK_SIZES.contains(size) || count.is_some_and(|count| count == leading_digits(count));
        !family.is_empty() && family.chars().all(word) && size_known
    });
    let size = size.map_or_else(|| crate::quantity::cores(cpu_milli), |(_, size)| size.to_owned());
    let family = match name.split_once(['.', '-']) {
        Some((family, _)) => family.to_owned(),
        None => name.chars().take(1).collect(),
    };
    Naming { family, size, ..Naming::default() }
}

fn leading_digits(text: &str) -> &str {
    &text[..text.bytes().take_while(u8::is_ascii_digit).count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(provider: Provider, name: &str) -> String {
        let naming = read(provider, name, 4000);
        [naming.family, naming.category, naming.generation, naming.size, naming.shape].join(" ")
    }

    #[test]
    fn aws_names() {
        for (name, expected) in [
            ("m5.large", "m5 m 5 large "),
            ("c7gn.16xlarge", "c7gn c 7 16xlarge "),
            ("u-3tb1.56xlarge", "u-3tb1 u 1 56xlarge "),
            ("u7in-16tb.224xlarge", "u7in-16tb u 7 224xlarge "),
            ("p6-b200.48xlarge", "p6-b200 p 6 48xlarge "),
            ("gr6f.4xlarge", "gr6f gr 6 4xlarge "),
            ("m5.metal-24xl", "m5 m 5 metal-24xl "),
            ("own", "    "),
        ] {
            assert_eq!(parts(Provider::Aws, name), expected, "{name}");
        }
    }

    #[test]
    fn gcp_names() {
        for (name, expected) in [
            ("n2-standard-4", "n2 n 2 4 standard"),
            ("c3d-highmem-90", "c3d c 3 90 highmem"),
            ("a2-highgpu-1g", "a2 a 2 1g highgpu"),
            ("e2-medium", "e2 e 2 medium medium"),
            ("c3-standard-8-lssd", "c3 c 3 8 standard"),
        ] {
            assert_eq!(parts(Provider::Gcp, name), expected, "{name}");
        }
    }

    #[test]
    fn kwok_names() {
        for (name, expected) in [
            ("c-1x-amd64-linux", "c   4 "),
            ("m5.large", "m5   large "),
            ("m5.2xlarge", "m5   2xlarge "),
            ("m5.xlarge", "m5   xlarge "),
            ("m5.metal-24xl", "m5   4 "),
            ("Standard_D4", "S   4 "),
        ] {
            assert_eq!(parts(Provider::Kwok, name), expected, "{name}");
        }
    }
}
