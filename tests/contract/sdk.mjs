// What users do with the JavaScript SDKs: plain, streamed, tools, structured output, errors, cancel.  Called by
// check_sdks.py.
import { createRequire } from "node:module";
import assert from "node:assert/strict";

const load = createRequire(process.env.MODULES + "/x.js");
const OpenAI = load("openai").default ?? load("openai");
const Anthropic = load("@anthropic-ai/sdk").default ?? load("@anthropic-ai/sdk");
const url = process.env.URL;
const client = new OpenAI({ baseURL: url + "/v1", apiKey: "none", maxRetries: 0, timeout: 20000 });
const claude = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0, timeout: 20000 });

const hello = "Hello, world.";
const ask = [{ role: "user", content: "Say hello." }];
const weather = [{ role: "user", content: "What is the weather in Paris?" }];
const schema = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather.", parameters: schema } }];
const claudeTools = [{ name: "get_weather", description: "The weather.", input_schema: schema }];
const weatherSchema = {
  type: "object",
  properties: { city: { type: "string" }, degrees: { type: "integer" } },
  required: ["city", "degrees"],
  additionalProperties: false,
};
const asJson = [{ role: "user", content: "The weather as JSON." }];

async function check(name, test) {
  try {
    await test();
    console.log(`ok sdk-js-${name}  `);
  } catch (e) {
    console.log(`FAIL sdk-js-${name}  ${String(e.message ?? e).slice(0, 500).replaceAll("\n", " ")}`);
  }
}

await check("openai-chat", async () => {
  const r = await client.chat.completions.create({ model: "m", messages: ask });
  assert.equal(r.choices[0].message.content, hello);
  assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
});

await check("openai-chat-stream", async () => {
  const stream = client.chat.completions.stream({ model: "m", messages: ask, stream_options: { include_usage: true } });
  assert.equal(await stream.finalContent(), hello);
  assert.ok((await stream.totalUsage()).completion_tokens > 1);
});

await check("openai-chat-tools", async () => {
  const stream = client.chat.completions.stream({ model: "m", messages: weather, tools });
  const message = await stream.finalMessage();
  const call = message.tool_calls[0];
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris", days: 2 });
  const result = { role: "tool", tool_call_id: call.id, content: "21 degrees" };
  const r = await client.chat.completions.create({ model: "m", messages: [...weather, message, result], tools });
  assert.equal(r.choices[0].message.content, "It is 21 degrees in Paris.");
});

await check("openai-chat-parse", async () => {
  const format = { type: "json_schema", json_schema: { name: "weather", strict: true, schema: weatherSchema } };
  const r = await client.chat.completions.create({ model: "m", messages: asJson, response_format: format });
  assert.equal(JSON.parse(r.choices[0].message.content).degrees, 21);
});

await check("openai-responses", async () => {
  const r = await client.responses.create({ model: "m", input: "Say hello." });
  assert.equal(r.output_text, hello);
  const stream = client.responses.stream({ model: "m", input: "Say hello." });
  const final = await stream.finalResponse();
  assert.equal(final.output_text, hello);
  assert.equal(final.status, "completed");
});

await check("openai-responses-tools", async () => {
  const own = [{ type: "function", name: "get_weather", description: "The weather.", parameters: schema, strict: false }];
  const stream = client.responses.stream({ model: "m", input: weather, tools: own });
  const final = await stream.finalResponse();
  const call = final.output.find((item) => item.type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Paris", days: 2 });
  const result = { type: "function_call_output", call_id: call.call_id, output: "21 degrees" };
  const r = await client.responses.create({ model: "m", input: [...weather, ...final.output, result], tools: own });
  assert.equal(r.output_text, "It is 21 degrees in Paris.");
});

await check("openai-errors", async () => {
  const wrong = client.chat.completions.create({ model: "m", messages: ask, temperature: "warm" });
  await assert.rejects(wrong, (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
  const long = client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "x ".repeat(300000) }] });
  await assert.rejects(long, (e) => e.code === "context_length_exceeded");
  const broken = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "break" }], stream: true });
  await assert.rejects(async () => {
    for await (const _ of broken);
  }, OpenAI.APIError);
});

await check("openai-cancel", async () => {
  const stream = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "endless" }], stream: true });
  for await (const _ of stream) break;
});

await check("openai-models", async () => {
  const names = [];
  for await (const m of client.models.list()) names.push(m.id);
  assert.deepEqual(names, ["m"]);
});

await check("anthropic-messages", async () => {
  const r = await claude.messages.create({ model: "m", max_tokens: 100, messages: ask });
  assert.equal(r.content[0].text, hello);
  assert.equal(r.stop_reason, "end_turn");
});

await check("anthropic-stream", async () => {
  const stream = claude.messages.stream({ model: "m", max_tokens: 100, messages: ask });
  assert.equal(await stream.finalText(), hello);
  const thinking = claude.messages.stream({ model: "m", max_tokens: 2000, messages: ask, thinking: { type: "enabled", budget_tokens: 1024 } });
  const final = await thinking.finalMessage();
  assert.deepEqual(final.content.map((b) => b.type), ["thinking", "text"]);
});

await check("anthropic-tools", async () => {
  const stream = claude.messages.stream({ model: "m", max_tokens: 100, messages: weather, tools: claudeTools });
  const final = await stream.finalMessage();
  const call = final.content.at(-1);
  assert.equal(final.stop_reason, "tool_use");
  assert.deepEqual(call.input, { city: "Paris", days: 2 });
  const result = { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "21 degrees" }] };
  const messages = [...weather, { role: "assistant", content: final.content }, result];
  const r = await claude.messages.create({ model: "m", max_tokens: 100, messages, tools: claudeTools });
  assert.equal(r.content[0].text, "It is 21 degrees in Paris.");
});

await check("anthropic-json", async () => {
  const output_config = { format: { type: "json_schema", schema: weatherSchema } };
  const r = await claude.messages.create({ model: "m", max_tokens: 100, messages: asJson, output_config });
  assert.equal(JSON.parse(r.content[0].text).degrees, 21);
});

await check("anthropic-errors", async () => {
  const long = claude.messages.create({ model: "m", max_tokens: 100, messages: [{ role: "user", content: "x ".repeat(300000) }] });
  await assert.rejects(long, (e) => e instanceof Anthropic.BadRequestError && /prompt is too long: \d+ tokens > \d+ maximum/.test(e.message));
});

await check("anthropic-cancel", async () => {
  const stream = await claude.messages.create({ model: "m", max_tokens: 1000000, stream: true, messages: [{ role: "user", content: "endless" }] });
  for await (const event of stream) if (event.type === "content_block_delta") break;
});

await check("anthropic-count-and-models", async () => {
  assert.ok((await claude.messages.countTokens({ model: "m", messages: ask })).input_tokens > 5);
  const names = [];
  for await (const m of claude.models.list()) names.push(m.id);
  assert.deepEqual(names, ["m"]);
});
