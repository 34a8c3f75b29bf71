//! Amounts in words.

/// Bytes: `999 B`, `1.2 KB`, in steps of 1,024.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KB", tenths(1024)),
        0x10_0000..0x4000_0000 => format!("{} MB", tenths(0x10_0000)),
        _ => format!("{} GB", tenths(0x4000_0000)),
    }
}
