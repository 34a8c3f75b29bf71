// A peer for tests: reads JSON texts, one a line, and answers each with the text that JavaScript hashes, or
// with "refused". Splits on LF only: U+2028 is an ordinary character in JSON.
import { createHash } from "node:crypto";

function sorter(_key, value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  const rebuilt = {};
  for (const key of Object.keys(value).sort()) rebuilt[key] = value[key];
  return rebuilt;
}

function answer(line) {
  let value;
  try {
    value = JSON.parse(line);
  } catch {
    return "refused";
  }
  const text = JSON.stringify(value, sorter);
  return `${createHash("sha256").update(text, "utf8").digest("hex")} ${text}`;
}

let rest = Buffer.alloc(0);
process.stdin.on("data", (chunk) => {
  rest = Buffer.concat([rest, chunk]);
  for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
    const line = rest.subarray(0, end).toString("utf8");
    rest = rest.subarray(end + 1);
    process.stdout.write(answer(line) + "\n");
  }
});
