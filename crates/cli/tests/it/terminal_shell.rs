//! Lines of the user's in the shell: seen while they run, stopped, and never lost.

use nix::sys::signal::Signal;
use quipu_testkit::Gate;

use crate::pty::{CTRL_C, CTRL_D, ESCAPE, Terminal, held, says};
use crate::support::{World, messages, reached, wire_text};

fn fifo(world: &World) -> std::path::PathBuf {
    let path = world.path("work/go");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    path
}

/// What the model is told first.
fn told(world: &World, request: usize) -> String {
    messages(&world.requests()[request]).iter().map(wire_text).collect::<Vec<_>>().join("\n")
}

#[test]
fn shell_output_streams_folds_and_stays() {
    let world = World::new([says("I see.")]);
    let go = fifo(&world);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("!seq -f row-%g 50; read -r word < go; echo \"the word is $word\"\r");
    terminal.shows("row-50");
    terminal.shows("lines above");
    terminal.shows("running");
    std::fs::write(&go, "fish\n").unwrap();
    terminal.shows("the word is fish");
    terminal.hides("running");
    terminal.types("what was it?\r");
    terminal.settles("I see.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let told = told(&world, 0);
    for part in ["row-1\n", "row-50", "the word is fish", "what was it?"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn escape_stops_a_shell_line_and_keeps_its_output() {
    let world = World::new([says("I see.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("!echo begun-$((40+2)); sleep 1000\r");
    terminal.shows("begun-42");
    terminal.types(ESCAPE);
    terminal.shows("stopped");
    terminal.until("the line in the editor", |shown| shown.matches("sleep 1000").count() == 2);
    terminal.types(&format!("{CTRL_C}well?\r"));
    terminal.settles("I see.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let told = told(&world, 0);
    assert!(told.contains("begun-42") && told.contains("I stopped it before it ended."), "{told}");
}

#[test]
fn shell_line_survives_a_kill_before_the_first_prompt() {
    let world = World::new([says("I see.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("!echo seen-$((40+2))\r");
    terminal.shows("seen-42");
    terminal.hides("running");
    terminal.types("!!echo hidden-$((40+3))\r");
    terminal.shows("hidden-43");
    terminal.hides("running");
    // A mark behind it: its node is there then.
    terminal.types("/context\r");
    terminal.shows("of 200");
    terminal.dies();
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("seen-42");
    terminal.shows("hidden-43");
    terminal.types("what was it?\r");
    terminal.settles("I see.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let told = told(&world, 0);
    assert!(told.contains("seen-42") && !told.contains("hidden"), "{told}");
}

#[test]
fn interrupted_shell_line_is_reported_after_a_kill() {
    let world = World::new([says("I see.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("!echo begun-$((40+2)); sleep 1000\r");
    terminal.shows("begun-42");
    terminal.dies();
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("process ended before this command did");
    terminal.types("well?\r");
    terminal.settles("I see.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let told = told(&world, 0);
    assert!(told.contains("sleep 1000") && told.contains("process ended before this command did"), "{told}");
}

#[test]
fn the_end_of_the_program_stops_it_and_keeps_what_it_printed() {
    for signal in [None, Some(Signal::SIGTERM), Some(Signal::SIGHUP)] {
        let world = World::new([says("I see.")]);
        let mut terminal = Terminal::open(&world, &[]);
        terminal.shows("test-1");
        terminal.types("!echo begun-$((40+2)); sleep 1000\r");
        terminal.shows("begun-42");
        let code = match signal {
            Some(signal) => {
                terminal.signal(signal);
                128 + signal as i32
            }
            None => {
                terminal.types(CTRL_D);
                0
            }
        };
        assert_eq!(terminal.ends(), Some(code));
        let mut terminal = Terminal::open(&world, &["-c"]);
        terminal.shows("begun-42");
        terminal.shows("stopped");
        terminal.types("well?\r");
        terminal.settles("I see.");
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
        assert!(told(&world, 0).contains("begun-42"));
    }
}

#[test]
fn shell_line_runs_parallel_to_the_agent_and_follows_it() {
    let gate = Gate::new();
    let world = World::new([held("Working on it.", &gate), says("I see.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("begin\r");
    reached(&gate);
    terminal.shows("Working on it.");
    terminal.types("!echo beside-$((40+2))\r");
    terminal.shows("beside-42");
    gate.open();
    terminal.settles("beside-42");
    terminal.types("and?\r");
    terminal.settles("I see.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let said: Vec<String> = messages(&world.requests()[1]).iter().map(wire_text).collect();
    assert_eq!((said[0].as_str(), said[1].as_str()), ("begin", "Working on it."));
    assert!(said[2..].concat().contains("beside-42") && said.concat().ends_with("and?"), "{said:?}");
}
