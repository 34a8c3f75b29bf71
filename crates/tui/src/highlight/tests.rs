use proptest::prelude::*;

use super::*;

/// Each line with its runs of one role between marks.
fn roles(language: &str, code: &str) -> String {
    let mut highlighter = Highlighter::new(language);
    let mut out = String::new();
    for line in code.split('\n') {
        for run in highlighter.line(line) {
            let mark = match run.role {
                Role::Text | Role::Punctuation => {
                    out.push_str(&run.text);
                    continue;
                }
                Role::Keyword => "k",
                Role::Type => "t",
                Role::Function => "f",
                Role::String => "s",
                Role::Number => "n",
                Role::Constant => "v",
                Role::Comment => "c",
                Role::Property => "p",
                other => other.name(),
            };
            let text = run.text.trim_end();
            out.push_str(&format!("{mark}‹{text}›{}", &run.text[text.len()..]));
        }
        out.push('\n');
    }
    out.trim_end_matches('\n').to_owned()
}

#[track_caller]
fn check(language: &str, code: &str, expect: &str) {
    assert_eq!(roles(language, code), expect, "{language}");
}

#[test]
fn languages() {
    check(
        "rust",
        "pub fn f<'a>(x: &'a str) -> u8 { b'x' }",
        "k‹pub fn› f‹f›<p‹'a›>(x: &p‹'a› t‹str›) -> t‹u8› { bs‹'x'› }",
    );
    check(
        "rs",
        "#[test]\nlet s = r#\"a\"b\"#; // c\nprintln!(\"{}\", 1_000.5e-3);",
        "p‹#[test]›\nk‹let› s = s‹r#\"a\"b\"#›; c‹// c›\nf‹println›!(s‹\"{}\"›, n‹1_000.5e-3›);",
    );
    check("rust", "/* a /* b\n*/ c */ x", "c‹/* a /* b›\nc‹*/ c */› x");
    check(
        "python",
        "@deco\ndef f(x):\n    \"\"\"doc\n    more\"\"\"\n    return f'{x}' # c",
        "p‹@deco›\nk‹def› f‹f›(x):\n    s‹\"\"\"doc›\ns‹    more\"\"\"›\n    k‹return› s‹f'{x}'› c‹# c›",
    );
    check(
        "ts",
        "const x: string = `a\n${b}` + 'c\\'d';",
        "k‹const› x: t‹string› = s‹`a›\ns‹${b}`› + s‹'c\\'d'›;",
    );
    check("go", "func main() { x := nil }", "k‹func› f‹main›() { x := v‹nil› }");
    check(
        "c",
        "#include <a.h>\n#define X 1\nint main(void) { char c = '\\n'; }",
        "k‹#include›s‹ <a.h>›\nk‹#define› t‹X› n‹1›\nt‹int› f‹main›(t‹void›) { t‹char› c = s‹'\\n'›; }",
    );
    check(
        "sh",
        "if [ -n \"$X\" ]; then echo ${Y}#z # c\nfi",
        "k‹if› [ -n s‹\"$X\"› ]; k‹then› t‹echo› p‹${Y}›#z c‹# c›\nk‹fi›",
    );
    check("sql", "Select * FROM t -- c\nWHERE a = 'x'", "k‹Select› * k‹FROM› t c‹-- c›\nk‹WHERE› a = s‹'x'›");
    check(
        "json",
        "{\"a\": [1, true, \"b\"], \"c\": null}",
        "{p‹\"a\"›: [n‹1›, v‹true›, s‹\"b\"›], p‹\"c\"›: v‹null›}",
    );
    check(
        "yaml",
        "a-b: x # c\n- k: \"v\"\n  u: http://x#y",
        "p‹a-b›: x c‹# c›\n- p‹k›: s‹\"v\"›\n  p‹u›: http://x#y",
    );
    check("toml", "[a.b]\nc = \"d\" # e", "t‹[a.b]›\np‹c› = s‹\"d\"› c‹# e›");
    check(
        "html",
        "<a href=\"x\ny\">t &amp;</a><!-- c\nd -->e",
        "<k‹a› p‹href›=s‹\"x›\ns‹y\"›>t v‹&amp;›</k‹a›>c‹<!-- c›\nc‹d -->›e",
    );
    check("css", "a { color: red; } /* c */", "a { color: red; } c‹/* c */›");
    check("diff", "@@ -1 +1 @@\n-a\n+b\n c", "p‹@@ -1 +1 @@›\nremoved‹-a›\nadded‹+b›\ncontext‹ c›");
    check("dockerfile", "FROM x AS y\nRUN echo $Z", "k‹FROM› x k‹AS› y\nk‹RUN› echo p‹$Z›");
    check("lua", "--[[ a\nb ]] local x -- c", "c‹--[[ a›\nc‹b ]]› k‹local› x c‹-- c›");
    check("haskell", "f' :: Int -> Bool {- c -}", "f' :: t‹Int› -> t‹Bool› c‹{- c -}›");
    check("md", "# H\n`a` b\n```\n# x\n```", "heading‹# H›\ncode‹`a`› b\ncode‹```›\ncode‹# x›\ncode‹```›");
    check("make", "all: x\n\techo $(Y)", "p‹all›: x\n\techo p‹$›(Y)");
    check("no such", "fn x", "code‹fn x›");
    check("", "fn x", "code‹fn x›");
}

/// A few lines of every language that there is.
const SAMPLES: &[(&str, &str)] = &[
    ("rust", "async fn f<T: Copy>(x: &[u8]) -> Result<T, E> { x?; Self::NEW } // c"),
    ("python", "async def f(*a, b=None):\n    yield from g(0x1F) if not b else lambda: True  # c"),
    ("typescript", "export default class A<T> extends B { private x?: number = 1n; } /* c */"),
    ("jsx", "const a = <div className=\"x\">{y ?? null}</div>; // c"),
    ("go", "type T struct { a int `json:\"a\"` }\nfor i := range 10 { defer f() } // c"),
    ("c", "static const char *s = \"a\\n\"; /* c */ if (x != NULL) return 0xFFu;"),
    ("cpp", "template<typename T> auto f(T&& x) noexcept -> decltype(x) { return nullptr; } // c"),
    ("java", "@Override public final String f(int x) throws E { return \"a\" + 1L; } // c"),
    ("kotlin", "data class A(val x: Int = 1) { fun f() = when (x) { 1 -> \"a$x\"; else -> null } } // c"),
    ("swift", "guard let x = y as? String else { return nil } // c"),
    ("csharp", "public async Task<int> F() => await G($\"a {x}\") ?? 1; // c"),
    ("scala", "case class A(x: Int) extends B { def f = x match { case 1 => \"a\" } } // c"),
    ("dart", "Future<void> f() async { final x = 'a $y'; await g(); } // c"),
    ("zig", "pub fn main() !void { const x: u8 = undefined; try f(); } // c"),
    ("php", "<?php function f(?int $x): string { return \"a $x\" . 'b'; } // c"),
    ("ruby", "def f(x) = puts \"a #{x}\" unless x.nil? # c\n:symbol"),
    ("elixir", "defmodule A do\n  def f(x), do: IO.puts(\"a #{x}\") # c\nend"),
    ("perl", "my $x = shift; print \"a $x\\n\" unless defined $x; # c"),
    ("shell", "for f in *.txt; do echo \"${f%.txt}\" | wc -l; done # c"),
    ("powershell", "function F($x) { if ($x -eq 1) { Write-Host \"a $x\" } } # c"),
    ("sql", "Alter Table t Add Column a Integer Not Null Default 1; /* c */"),
    ("xml", "<?xml version=\"1.0\"?><a b='c'>&lt;<!-- d --></a>"),
    ("scss", "$a: #fff; .b { color: rgba(0, 0, 0, .5); &:hover { top: 1px } } // c"),
    ("jsonc", "{ \"a\": [-1.5e3, false] } // c"),
    ("yaml", "a: &x [1, true]\nb: *x # c\nc: |\n  text"),
    ("ini", "[section]\nkey = value ; c"),
    ("dockerfile", "FROM rust:1 AS build\nCOPY --from=a /x /y\nENV A=1 # c"),
    ("makefile", "CC := gcc\nall: a.o # c\n\t$(CC) -o $@ $^"),
    ("cmake", "set(X \"a\") # c"),
    ("lua", "local function f(x) return x ~= nil and \"a\" or 1 end -- c"),
    ("haskell", "main :: IO ()\nmain = do { let x = 1; print (Just x) } -- c"),
    ("nix", "{ pkgs ? import <nixpkgs> {} }: with pkgs; mkShell { a = \"x${y}\"; } # c"),
    ("diff", "--- a\n+++ b\n@@ -1,2 +1,2 @@\n-old\n+new"),
    ("markdown", "# Heading\n- *a* `b` [c](d)\n> quote"),
];

#[test]
fn every_language_has_a_sample() {
    let mut out = String::new();
    for (language, code) in SAMPLES {
        out.push_str(&format!("── {language}\n{}\n", roles(language, code)));
    }
    insta::assert_snapshot!("samples", out);
    for language in LANGUAGES {
        let has = |(name, _): &&(&str, &str)| language.names.split(' ').any(|known| known == *name);
        assert!(SAMPLES.iter().any(|sample| has(&sample)), "{} has no sample", language.names);
    }
}

#[test]
fn a_string_ends_with_its_line() {
    check("js", "a = \"b\nc", "a = s‹\"b›\nc");
    check("c", "x = 'a\ny", "x = p‹'a›\ny");
}

proptest! {
    #[test]
    fn no_text_is_lost(index in 0..LANGUAGES.len(), text in "([ -~]|é|日|\"\"\"|/\\*|\\*/|<!--|-->|\\$\\{|#\\[|'|\\\\){0,40}\n?([ -~]|é|\"|'|`|\\*/){0,40}") {
        let name = LANGUAGES[index].names.split(' ').next().unwrap();
        let mut highlighter = Highlighter::new(name);
        for line in text.split('\n') {
            let shown: String = highlighter.line(line).iter().map(|run| run.text.as_str()).collect();
            prop_assert_eq!(shown, line);
        }
    }
}
