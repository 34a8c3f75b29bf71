// Made by `quipu setup`; removed by `quipu setup --remove`. It gives the model pieces of the history of this directory.
import { spawn } from "node:child_process";

// ASK

export const Quipu = async ({ directory }) => {
  // By session: the text at its start stays the same, or the provider's cache of the prompt would be lost.
  const starts = new Map();
  const base = (session) => ({ session_id: session, cwd: directory });
  return {
    "experimental.chat.system.transform": async (input, output) => {
      const session = input.sessionID;
      if (!session) return;
      if (!starts.has(session)) {
        if (starts.size > 200) starts.clear();
        starts.set(session, ask("experimental.chat.system.transform", base(session)));
      }
      const text = await starts.get(session);
      if (text) output.system.push(text);
    },
    "chat.message": async (input, output) => {
      const own = output.parts.filter((part) => part.type === "text" && !part.synthetic);
      const prompt = own.map((part) => part.text).join("\n");
      if (!prompt) return;
      const text = await ask("chat.message", { ...base(input.sessionID), prompt });
      if (!text) return;
      const last = own[own.length - 1];
      output.parts.push({ ...last, id: last.id.slice(0, -2) + "zq", text, synthetic: true });
    },
    "tool.execute.after": async (input, output) => {
      const exit = output.metadata?.exit;
      const isFailure = input.tool === "bash" && typeof exit === "number" && exit !== 0;
      if (input.tool !== "read" && !isFailure) return;
      const said = isFailure ? String(output.output ?? "").slice(-20000) : "";
      const payload = { ...base(input.sessionID), tool: input.tool, args: input.args, exit, output: said };
      const text = await ask("tool.execute.after", payload);
      if (text) output.output += "\n\n" + text;
    },
    event: async ({ event }) => {
      if (event.type === "session.idle") await ask("session.idle", base(event.properties?.sessionID));
    },
  };
};
