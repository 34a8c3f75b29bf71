const PROGRAM = "QUIPU";
// A hook gives up by itself; what it needs to start and to end comes on top of that.
const LIMIT_MS = (Number(process.env.QUIPU_HOOK_DEADLINE_MS) || 40) + 10;
// A program that never ends is no hook.
const KILL_MS = LIMIT_MS + 5000;

/** What the hook says, or "" where it says nothing, is missing, fails or takes too long. */
function ask(event, payload) {
  return new Promise((resolve) => {
    let said = "";
    const limit = setTimeout(() => resolve(""), LIMIT_MS);
    const end = (text) => {
      clearTimeout(limit);
      resolve(text);
    };
    try {
      const child = spawn(PROGRAM, ["hook", "AGENT", event], { stdio: ["pipe", "pipe", "ignore"] });
      // One that is late may still begin to take a turn in.
      const kill = setTimeout(() => child.kill(), KILL_MS);
      kill.unref();
      child.on("error", () => {
        clearTimeout(kill);
        end("");
      });
      child.stdin.on("error", () => {});
      child.stdout.on("data", (part) => (said += part));
      child.on("close", () => {
        clearTimeout(kill);
        try {
          end(said ? String(JSON.parse(said).text ?? "") : "");
        } catch {
          end("");
        }
      });
      child.stdin.end(JSON.stringify(payload));
    } catch {
      end("");
    }
  });
}
