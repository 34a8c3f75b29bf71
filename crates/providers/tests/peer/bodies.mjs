// Sends conversations through the providers of another agent, to a recorder on loopback.
// stdin: [{ api, model, context, options }, ..]; argument: the folder of its package.
// stdout: a line for each: { path, body } as it was sent, or { error }. Half of a surrogate pair, which its JSON has as an
// escape, is the replacement character here, and what is 100 levels deep is an ellipsis: readers of JSON have a limit.
import http from "node:http";
import path from "node:path";
import zlib from "node:zlib";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
let text = "";
for await (const chunk of process.stdin) text += chunk;

function whole(value, depth) {
  if (typeof value === "string") return value.toWellFormed();
  if (value === null || typeof value !== "object") return value;
  if (depth === 100) return "…";
  if (Array.isArray(value)) return value.map((one) => whole(one, depth + 1));
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, whole(one, depth + 1)]));
}

let seen = null;
const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const sent = Buffer.concat(parts);
    const plain = request.headers["content-encoding"] === "zstd" ? zlib.zstdDecompressSync(sent) : sent;
    const body = JSON.parse(plain.toString("utf8"));
    seen ??= { path: request.url, body: JSON.stringify(whole(body, 0)) };
    // An answer that nobody tries again.
    response.writeHead(400, { "content-type": "application/json" });
    response.end(JSON.stringify({ error: { message: "recorded" } }));
  });
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const origin = `http://127.0.0.1:${server.address().port}`;

// A token of an account, for the API that wants one.
const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
const claims = { "https://api.openai.com/auth": { chatgpt_account_id: "account-of-test" } };
const token = [part({ alg: "none" }), part(claims), "signature"].join(".");

for (const { api, model, context, options } of JSON.parse(text)) {
  seen = null;
  let error = null;
  try {
    const wire = await import(pathToFileURL(path.join(folder, "dist/api", `${api}.js`)));
    const base = new URL(model.baseUrl);
    const own = api === "openai-codex-responses" ? { apiKey: token, transport: "sse" } : {};
    const there = { ...model, baseUrl: origin + (base.pathname === "/" ? "" : base.pathname) };
    for await (const event of wire.streamSimple(there, context, { ...options, ...own, maxRetries: 0 })) {
      if (event.type === "error") error = event.error?.errorMessage ?? String(event.error);
    }
  } catch (thrown) {
    error = String(thrown);
  }
  console.log(JSON.stringify(seen ?? { error: error ?? "nothing was sent" }));
}
server.close();
server.closeAllConnections();
