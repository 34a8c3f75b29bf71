//! Made-up secrets: `{a36}` in a template becomes 36 letters and digits, and so on; the same for the same seed.

const SETS: [(char, &str); 7] = [
    ('a', "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"),
    ('A', "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
    ('h', "0123456789abcdef"),
    ('d', "0123456789"),
    ('u', "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"),
    ('b', "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"),
    ('l', "abcdefghijklmnopqrstuvwxyz"),
];

/// The template with its holes filled.
pub(crate) fn expand(template: &str, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut out = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let hole = &rest[open + 1..];
        let filled = hole.find('}').and_then(|close| {
            let set = SETS.iter().find(|(name, _)| hole.starts_with(*name))?.1.as_bytes();
            Some((close, set, hole[1..close].parse::<usize>().ok()?))
        });
        let Some((close, set, length)) = filled else {
            out.push_str(&rest[..=open]);
            rest = hole;
            continue;
        };
        out.push_str(&rest[..open]);
        for n in 0..length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut at = usize::try_from(state >> 33).unwrap_or_default() % set.len();
            // No `-` or `_` at an end, and a digit early: real ones are long enough to have one for sure.
            if n == 0 || n + 1 == length {
                at %= set.len().min(62);
            }
            let digit = set.iter().position(|b| *b == b'7');
            out.push(char::from(set[if n == 2 { digit.unwrap_or(at) } else { at }]));
        }
        rest = &hole[close + 1..];
    }
    out.push_str(rest);
    out
}

/// The parts of a template with `{{…}}` around the secret, filled.
pub(crate) fn plant(template: &str, seed: u64) -> (String, String, String) {
    let (before, rest) = template.split_once("{{").unwrap_or((template, "}}"));
    // `{{{a40}}}` ends with the last two of its braces.
    let end = rest.rfind("}}").unwrap_or_default();
    (expand(before, seed), expand(&rest[..end], seed), expand(&rest[end + 2..], seed))
}
