// Arguments: the module of the client, the address of the server, the token.
import assert from "node:assert/strict";
const [module, baseURL, apiKey] = process.argv.slice(2);
const { default: OpenAI } = await import(module);
const client = new OpenAI({ baseURL, apiKey });

const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert.ok(models.includes("quipu") && models.includes("testing/test-1"), models.join());
assert.equal((await client.models.retrieve("testing/test-1")).owned_by, "testing");

const create = (content, more) =>
  client.chat.completions.create({ model: "quipu", messages: [{ role: "user", content }], ...more });
const hello = await create("Hello");
assert.equal(hello.choices[0].message.content, "Hello from the agent.");
assert.equal(hello.usage.total_tokens, 15);

let text = "";
let usage = null;
let finish = null;
const stream = await create("What does note.txt say?", { stream: true, stream_options: { include_usage: true } });
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
  finish = chunk.choices[0]?.finish_reason ?? finish;
  usage = chunk.usage ?? usage;
}
assert.equal(text, "I look.\n\nIt says blue.");
assert.equal(finish, "stop");
assert.equal(usage.completion_tokens, 10);

await create("Remember 7.", { user: "ann" });
assert.equal((await create("Which?", { user: "ann" })).choices[0].message.content, "It was 7.");

const image =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const parts = [{ type: "text", text: "What is it?" }, { type: "image_url", image_url: { url: image } }];
assert.equal((await create(parts)).choices[0].message.content, "A dot.");

const fails = async (work, wanted, status, code) => {
  const error = await work.then(() => null, (error) => error);
  assert.ok(error instanceof wanted, String(error));
  assert.equal(error.status, status);
  assert.equal(error.code, code);
};
await fails(create("This fails."), OpenAI.InternalServerError, 502, "model_failed");
await fails(create("Two", { n: 2 }), OpenAI.BadRequestError, 400, "unsupported_parameter");
await fails(create("Who?", { model: "nobody" }), OpenAI.NotFoundError, 404, "model_not_found");
const stranger = new OpenAI({ baseURL, apiKey: "another-token-of-32-characters-xx" });
await fails(stranger.models.list(), OpenAI.AuthenticationError, 401, "invalid_api_key");
console.log("done");
