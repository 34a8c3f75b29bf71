// Pi's client starts `node FILE`; this file starts another program in its place.
import { spawn } from "node:child_process";

const child = spawn(process.env.QUIPU ?? "quipu", process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGTERM", "SIGHUP", "SIGINT"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(error.message);
  process.exit(1);
});
child.on("exit", (code) => process.exit(code ?? 1));
