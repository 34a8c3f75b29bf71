// Drives an agent by every method of Pi's own client, and prints what came of each as a line of JSON.
// Arguments: the module of the client, the shim that starts the agent, the agent's model.
import { pathToFileURL } from "node:url";

const [module, cliPath, model] = process.argv.slice(2);
const { RpcClient } = await import(pathToFileURL(module).href);
const used = new Set();
const client = new Proxy(new RpcClient({ cliPath, cwd: process.cwd(), model }), {
  get(target, name) {
    const member = target[name];
    if (typeof member !== "function") return member;
    used.add(name);
    return member.bind(target);
  },
});
const print = (name, value) => console.log(JSON.stringify({ name, value: value ?? null }));
const attempt = async (name, work) => {
  try {
    print(name, await work());
  } catch (error) {
    print(name, { error: String(error.message) });
  }
};

let kinds = [];
const unsubscribe = client.onEvent((event) => kinds.push(event.type));
await client.start();
await attempt("state", () => client.getState());
await attempt("commands", () => client.getCommands());
await attempt("models", () => client.getAvailableModels());
await attempt("setModel", () => client.setModel("testing", "thinker"));
await attempt("noModel", () => client.setModel("testing", "missing"));
await attempt("levels", () => client.getAvailableThinkingLevels());
await attempt("setLevel", () => client.setThinkingLevel("high"));
await attempt("cycleLevel", () => client.cycleThinkingLevel());
await attempt("cycleModel", () => client.cycleModel());
await attempt("backToModel", () => client.setModel("testing", model));
await attempt("promptAndWait", async () => (await client.promptAndWait("hello")).map((event) => event.type));
await attempt("messages", () => client.getMessages());
await attempt("lastText", () => client.getLastAssistantText());
await attempt("entries", () => client.getEntries());
const { entries } = await client.getEntries();
await attempt("since", () => client.getEntries(entries.at(-2).id));
await attempt("tree", () => client.getTree());
await attempt("stats", () => client.getSessionStats());
await attempt("bash", () => client.bash("printf 'a\\nb'; exit 2"));
await attempt("name", () => client.setSessionName("my name"));
await attempt("steering", () => client.setSteeringMode("all"));
await attempt("following", () => client.setFollowUpMode("one-at-a-time"));
await attempt("autoCompaction", () => client.setAutoCompaction(false));
await attempt("autoRetry", () => client.setAutoRetry(false));
await attempt("abortRetry", () => client.abortRetry());
await attempt("compact", () => client.compact("briefly"));

// A run that does not end by itself.
const started = new Promise((resolve) => {
  const stop = client.onEvent((event) => {
    if (event.type === "agent_start") {
      stop();
      resolve();
    }
  });
});
// One at a time: a listener that leaves makes the client skip the next one.
const all = client.collectEvents();
await attempt("prompt", () => client.prompt("wait"));
await started;
await attempt("steer", () => client.steer("steered"));
await attempt("followUp", () => client.followUp("followed"));
await attempt("queue", () => client.clearQueue());
await attempt("abort", () => client.abort());
await attempt("collected", async () => (await all).map((event) => event.type));
const idle = client.waitForIdle();
await client.prompt("again");
await attempt("idle", () => idle);

// A line in the shell that does not end by itself.
const slept = client.bash("echo up; exec sleep 3600");
await new Promise((resolve) => {
  const stop = client.onEvent((event) => {
    if (event.type === "bash_execution_update") {
      stop();
      resolve();
    }
  });
});
await attempt("abortBash", () => client.abortBash());
await attempt("slept", () => slept);

await attempt("exported", () => client.exportHtml());
await attempt("clone", () => client.clone());
await attempt("forkMessages", () => client.getForkMessages());
const [first] = await client.getForkMessages();
await attempt("fork", () => client.fork(first.entryId));
const { sessionId } = await client.getState();
await attempt("new", () => client.newSession());
await attempt("switch", () => client.switchSession(sessionId));
await attempt("switched", async () => (await client.getState()).sessionId === sessionId);
unsubscribe();
print("kinds", [...new Set(kinds)].sort());
await client.stop();
print("stderr", client.getStderr());
// What a program calls, as opposed to what the client is made of.
const inner = ["constructor", "handleLine", "createProcessExitError", "rejectPendingRequests", "send", "getData"];
const methods = Object.getOwnPropertyNames(RpcClient.prototype).filter((name) => !inner.includes(name));
print("unused", methods.filter((name) => !used.has(name)));
