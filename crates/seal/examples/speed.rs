//! How fast texts of 50 MB are sealed, as a table. Run with `--release`.

#![expect(clippy::print_stdout, reason = "an example that prints a table")]

use quipu_seal::Sealer;

fn main() {
    let size = 50 << 20;
    println!("{:>9} {:>9}  text of 50 MB", "no known", "40 known");
    for (name, piece) in [
        ("prose", "It was a quiet evening, and nobody asked for the password of the house.\n"),
        ("source", "    let token = lexer.next_token(); // secret: see https://example.org/a?b=c\n"),
        ("hashes", "9bef09a1c3d24e5f60718293a4b5c6d7e8f90123  crates/seal/src/lib.rs\n"),
        ("secrets", "DB_PASSWORD=hunter2hunter2\n"),
        ("hostile: token=", "token="),
        ("hostile: token='", "token='"),
        ("hostile: token=a1", "token=a1"),
        ("hostile: bearer", "Authorization: Bearer "),
    ] {
        let text = piece.repeat(size / piece.len());
        let mut times = Vec::new();
        for known in [0, 40] {
            let sealer = Sealer::new([7; 32]);
            for n in 0..known {
                sealer.know("key", &format!("a credential of the program, number {n}"));
            }
            let start = std::time::Instant::now();
            let sealed = sealer.seal(&text);
            times.push(format!("{:.2} s", start.elapsed().as_secs_f64()));
            drop(sealed);
        }
        println!("{:>9} {:>9}  {name}", times[0], times[1]);
    }
}
