// Lists the sessions of a directory as Pi does in its picker: list.mjs ENTRY CWD RESULT
import { writeFileSync } from "node:fs";

const [entry, cwd, result] = process.argv.slice(2);
const { SessionManager } = await import(entry);
const start = performance.now();
const sessions = await SessionManager.list(cwd);
writeFileSync(result, JSON.stringify({ ms: performance.now() - start, sessions: sessions.length }));
