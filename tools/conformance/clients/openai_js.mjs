// The API through OpenAI's client for JavaScript.

import OpenAI from "openai";
import { BASE, KEY, check, isEqual, isTrue, run } from "./report.mjs";

const client = new OpenAI({ baseURL: BASE, apiKey: KEY, timeout: 10_000 });
const model = "hermes-agent";
const user = (content) => ({ role: "user", content });
const session = (name) => ({ headers: { "X-Hermes-Session-Id": name } });
const once = (key) => ({ headers: { "Idempotency-Key": key } });

const ask = (messages, options) => client.chat.completions.create({ model, messages }, options);
const stream = (text, more = {}, options) =>
  client.chat.completions.create({ model, messages: [user(text)], stream: true, ...more }, options);
const textOf = (answer) => answer.choices[0].message.content;

async function joined(chunks) {
  let text = "";
  for await (const chunk of chunks) text += chunk.choices[0].delta.content ?? "";
  return text;
}

async function refused(kind, asked) {
  try {
    await asked;
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
  throw new Error(`no ${kind.name}`);
}

check("models: list, and one", async () => {
  const found = [];
  for await (const one of client.models.list()) found.push(one.id);
  isEqual(found, [model]);
  isEqual((await client.models.retrieve(model)).object, "model");
});

check("chat", async () => {
  const answer = await ask([user("hello")]);
  isEqual([textOf(answer), answer.choices[0].finish_reason], ["Hello there.", "stop"]);
  isTrue(answer.usage.total_tokens > answer.usage.completion_tokens, "no usage");
});

check("content in parts", async () => {
  isEqual(textOf(await ask([user([{ type: "text", text: "hello" }])])), "Hello there.");
});

check("stream", async () => {
  // The helper puts the chunks together and checks that they make a whole answer.
  const helper = client.chat.completions.stream({ model, messages: [user("hello")] });
  const answer = await helper.finalChatCompletion();
  isEqual([textOf(answer), answer.choices[0].finish_reason], ["Hello there.", "stop"]);
});

check("stream_options.include_usage", async () => {
  let last;
  for await (const chunk of await stream("hello", { stream_options: { include_usage: true } })) last = chunk;
  isTrue(last.usage.total_tokens > 0 && last.choices.length === 0, "no usage in the last chunk");
});

check("stream with a tool step", async () => {
  isEqual(await joined(await stream("use a tool")), "Looking. Done.");
});

check("cancel in mid-stream, then go on", async () => {
  const begun = await stream("never end", {}, session("cancel-openai-js"));
  for await (const chunk of begun) if (chunk.choices[0].delta.content) break;
  begun.controller.abort();
  isEqual(textOf(await ask([user("hello")], session("cancel-openai-js"))), "Hello there.");
});

check("history sent whole goes on", async () => {
  const first = await ask([user("hello, js")]).withResponse();
  const history = [user("hello, js"), first.data.choices[0].message, user("how many?")];
  const again = await ask(history).withResponse();
  const name = (one) => one.response.headers.get("x-hermes-session-id");
  isEqual([textOf(again.data), name(again)], ["2 messages", name(first)]);
});

check("conversation by name", async () => {
  await ask([user("hello")], session("named-openai-js"));
  isEqual(textOf(await ask([user("how many?")], session("named-openai-js"))), "2 messages");
});

for (const role of ["system", "developer"])
  check(`${role} message`, async () => {
    isEqual(textOf(await ask([{ role, content: "The word is maple." }, user("the word?")])), "maple");
  });

check("client's own retry, one model call", async () => {
  const options = { ...once("retry-js"), timeout: 500, maxRetries: 4 };
  isEqual(textOf(await ask([user("slowly, js")], options)), "asked once");
});

check("same key, another request: refused", async () => {
  await ask([user("hello")], once("conflict-js"));
  const error = await refused(OpenAI.ConflictError, ask([user("another")], once("conflict-js")));
  isEqual(error.code, "idempotency_key_reused");
});

check("wrong key", async () => {
  const other = new OpenAI({ baseURL: BASE, apiKey: "not-the-key-of-this-gateway" });
  const error = await refused(OpenAI.AuthenticationError, other.models.list());
  isEqual(error.code, "invalid_api_key");
});

check("bad request names the field", async () => {
  const error = await refused(OpenAI.BadRequestError, ask([]));
  isEqual([error.code, error.param], ["invalid_value", "messages"]);
});

const failing = (text, options) => refused(OpenAI.InternalServerError, ask([user(text)], options));
const times = async (text) => textOf(await ask([user(`how often? ${text}`)]));

check("failed turn: an error", async () => {
  isEqual((await failing("fail, js")).code, "agent_incomplete");
});

check("failed turn: not run again", async () => {
  await failing("fail again, js");
  isEqual(await times("fail again, js"), "1");
});

check("failed turn with a key: not run again", async () => {
  for (let asked = 0; asked < 2; asked++) await failing("fail with a key, js", once("fail-js"));
  isEqual(await times("fail with a key, js"), "1");
});

check("stream that breaks: an error", async () => {
  isEqual((await refused(OpenAI.APIError, stream("break, js").then(joined))).code, "agent_incomplete");
});

await run();
