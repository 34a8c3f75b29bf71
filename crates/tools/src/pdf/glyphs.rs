//! Characters of encodings and of names of glyphs.

use std::collections::HashMap;
use std::sync::LazyLock;

const WIN: &str = "€\u{fffd}‚ƒ„…†‡ˆ‰Š‹Œ\u{fffd}Ž\u{fffd}\u{fffd}‘’“”•–—˜™š›œ\u{fffd}žŸ";
const MAC: &str = "ÄÅÇÉÑÖÜáàâäãåçéèêëíìîïñóòôöõúùûü†°¢£§•¶ß®©™´¨≠ÆØ∞±≤≥¥µ∂∑∏π∫ªºΩæø¿¡¬√ƒ≈∆«»…\u{a0}ÀÃÕŒœ–—“”‘’÷◊ÿŸ⁄€‹›ﬁﬂ‡·‚„‰\
                   ÂÊÁËÈÍÎÏÌÓÔ\u{f8ff}ÒÚÛÙıˆ˜¯˘˙˚¸˝˛ˇ";
/// From 0xA1.
const STANDARD: &str =
    "¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ\u{fffd}–†‡·\u{fffd}¶•‚„”»…‰\u{fffd}¿\u{fffd}`´ˆ˜¯˘˙¨\u{fffd}˚¸\u{fffd}˝˛ˇ—";

fn ascii(code: u8) -> Option<char> {
    matches!(code, 32..=126).then(|| char::from(code))
}

fn listed(list: &str, index: u8) -> Option<char> {
    list.chars().nth(usize::from(index)).filter(|char| *char != '\u{fffd}')
}

pub(super) fn win_ansi(code: u8) -> Option<char> {
    match code {
        128..=159 => listed(WIN, code - 128),
        160.. => Some(char::from(code)),
        _ => ascii(code),
    }
}

pub(super) fn mac_roman(code: u8) -> Option<char> {
    if code < 128 { ascii(code) } else { listed(MAC, code - 128) }
}

pub(super) fn standard(code: u8) -> Option<char> {
    match code {
        b'\'' => Some('’'),
        b'`' => Some('‘'),
        0xE1 => Some('Æ'),
        0xE9 => Some('Ø'),
        0xEA => Some('Œ'),
        0xF1 => Some('æ'),
        0xF5 => Some('ı'),
        0xF9 => Some('ø'),
        0xFA => Some('œ'),
        0xFB => Some('ß'),
        0xA1..=0xD0 => listed(STANDARD, code - 0xA1),
        _ => ascii(code),
    }
}

/// Names and their characters.
const NAMES: &str = "space \u{20} exclam ! quotedbl \" numbersign # dollar $ percent % ampersand & quotesingle ' parenleft ( parenright ) \
    asterisk * plus + comma , hyphen - period . slash / zero 0 one 1 two 2 three 3 four 4 five 5 six 6 seven 7 eight 8 nine 9 \
    colon : semicolon ; less < equal = greater > question ? at @ bracketleft [ backslash \\ bracketright ] asciicircum ^ \
    underscore _ grave ` braceleft { bar | braceright } asciitilde ~ quoteleft ‘ quoteright ’ quotedblleft “ quotedblright ” \
    quotesinglbase ‚ quotedblbase „ guillemotleft « guillemotright » guilsinglleft ‹ guilsinglright › endash – emdash — \
    bullet • ellipsis … dagger † daggerdbl ‡ perthousand ‰ fraction ⁄ minus − multiply × divide ÷ plusminus ± notequal ≠ \
    lessequal ≤ greaterequal ≥ infinity ∞ approxequal ≈ summation ∑ product ∏ radical √ integral ∫ partialdiff ∂ degree ° \
    periodcentered · section § paragraph ¶ copyright © registered ® trademark ™ ordfeminine ª ordmasculine º cent ¢ sterling £ \
    yen ¥ Euro € currency ¤ florin ƒ brokenbar ¦ logicalnot ¬ mu µ exclamdown ¡ questiondown ¿ onesuperior ¹ twosuperior ² \
    threesuperior ³ onequarter ¼ onehalf ½ threequarters ¾ acute ´ dieresis ¨ cedilla ¸ macron ¯ circumflex ˆ tilde ˜ caron ˇ \
    breve ˘ dotaccent ˙ ring ˚ ogonek ˛ hungarumlaut ˝ ff ff fi fi fl fl ffi ffi ffl ffl germandbls ß dotlessi ı AE Æ ae æ OE Œ oe œ \
    Oslash Ø oslash ø Lslash Ł lslash ł Eth Ð eth ð Thorn Þ thorn þ Aring Å aring å Ccedilla Ç ccedilla ç Ntilde Ñ ntilde ñ \
    Scaron Š scaron š Zcaron Ž zcaron ž Agrave À Aacute Á Acircumflex Â Atilde Ã Adieresis Ä agrave à aacute á acircumflex â \
    atilde ã adieresis ä Egrave È Eacute É Ecircumflex Ê Edieresis Ë egrave è eacute é ecircumflex ê edieresis ë Igrave Ì \
    Iacute Í Icircumflex Î Idieresis Ï igrave ì iacute í icircumflex î idieresis ï Ograve Ò Oacute Ó Ocircumflex Ô Otilde Õ \
    Odieresis Ö ograve ò oacute ó ocircumflex ô otilde õ odieresis ö Ugrave Ù Uacute Ú Ucircumflex Û Udieresis Ü ugrave ù \
    uacute ú ucircumflex û udieresis ü Yacute Ý yacute ý Ydieresis Ÿ ydieresis ÿ Alpha Α Beta Β Gamma Γ Delta Δ Theta Θ \
    Lambda Λ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω alpha α beta β gamma γ delta δ epsilon ε zeta ζ eta η theta θ kappa κ lambda λ \
    nu ν xi ξ pi π rho ρ sigma σ tau τ phi φ chi χ psi ψ omega ω arrowright → arrowleft ← arrowup ↑ arrowdown ↓";

static TABLE: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let words: Vec<&str> = NAMES.split_whitespace().skip(1).collect();
    words.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect()
});

/// What a glyph with this name shows.
pub(super) fn of_name(name: &str) -> Option<String> {
    // `fi.alt` is another form of the same.
    let name = name.split('.').next().unwrap_or(name);
    let mut chars = name.chars();
    if let (Some(char), None) = (chars.next(), chars.next()) {
        return Some(char.to_string());
    }
    if name == "space" {
        return Some(" ".to_owned());
    }
    if let Some(text) = TABLE.get(name) {
        return Some((*text).to_owned());
    }
    let hex = name.strip_prefix("uni").or_else(|| name.strip_prefix('u'))?;
    let code = hex.get(..hex.len().min(6)).filter(|hex| hex.len() >= 4)?;
    u32::from_str_radix(code, 16).ok().and_then(char::from_u32).map(String::from)
}
