//! Citations are read as they are written.

use quipu_memory::Citation;

#[test]
fn citations_are_read_as_they_are_written() {
    for text in ["MEMORY.md#L1", "memory/2026-11-27-a#b.md#L3-L5"] {
        let citation: Citation = text.parse().expect("a citation");
        assert_eq!(citation.to_string(), text);
    }
    for text in ["", "MEMORY.md", "#L1", "a.md#L0", "a.md#L5-L3", "a.md#L1-L", "a.md#Lx", "a.md#L99999999999"]
    {
        let error = text.parse::<Citation>().expect_err("no citation");
        assert!(error.to_string().contains("PATH#L3"), "{error}");
    }
}
