// Made by `quipu setup`; removed by `quipu setup --remove`. It gives the model pieces of the history of the workspace.
import { spawn } from "node:child_process";

// ASK

const base = (context) => ({
  session_id: context?.sessionId,
  agent_id: context?.agentId,
  cwd: context?.workspaceDir,
});

export default {
  id: "quipu",
  name: "Quipu",
  register(api) {
    // Sessions that were given their start.
    const started = new Set();
    api.on("before_prompt_build", async (event, context) => {
      const parts = [];
      const session = context?.sessionId;
      if (session && !started.has(session)) {
        if (started.size > 200) started.clear();
        started.add(session);
        parts.push(await ask("session_start", base(context)));
      }
      const prompt = typeof event?.prompt === "string" ? event.prompt : "";
      if (prompt) parts.push(await ask("before_prompt_build", { ...base(context), prompt }));
      const text = parts.filter(Boolean).join("\n\n");
      return text ? { prependContext: text } : undefined;
    });
    api.on("agent_end", async (event, context) => {
      await ask("agent_end", base(context));
    });
  },
};
