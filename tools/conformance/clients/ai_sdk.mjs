// The API through the AI SDK (`ai` with `@ai-sdk/openai-compatible`), which checks every chunk by its own schema.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, streamText } from "ai";
import { BASE, KEY, check, isEqual, isTrue, run } from "./report.mjs";

const made = (more = {}) =>
  createOpenAICompatible({ name: "hermes", baseURL: BASE, apiKey: KEY, includeUsage: true, ...more });
const hermes = made()("hermes-agent");
const session = (name) => ({ "X-Hermes-Session-Id": name });
const once = (key) => ({ "Idempotency-Key": key });

const ask = (prompt, more = {}) => generateText({ model: hermes, prompt, maxRetries: 0, ...more });

/** All that a stream gives; throws its first error. */
async function read(prompt, more = {}) {
  const answer = streamText({ model: hermes, prompt, maxRetries: 0, onError: () => {}, ...more });
  for await (const part of answer.fullStream) if (part.type === "error") throw part.error;
  return { text: await answer.text, finish: await answer.finishReason, usage: await answer.totalUsage };
}

async function refused(status, asked) {
  try {
    await asked;
  } catch (error) {
    if (APICallError.isInstance(error) && error.statusCode === status) return error.data.error;
    throw error;
  }
  throw new Error(`no APICallError with ${status}`);
}

check("chat", async () => {
  const answer = await ask("hello");
  isEqual([answer.text, answer.finishReason], ["Hello there.", "stop"]);
  isTrue(answer.usage.totalTokens > 0, "no usage");
});

check("content in parts", async () => {
  const messages = [{ role: "user", content: [{ type: "text", text: "hel" }, { type: "text", text: "lo" }] }];
  isTrue((await ask(undefined, { messages })).text, "no answer");
});

check("stream", async () => {
  const { text, finish } = await read("hello", { model: made({ includeUsage: false })("hermes-agent") });
  isEqual([text, finish], ["Hello there.", "stop"]);
});

check("stream_options.include_usage", async () => {
  isTrue((await read("hello")).usage.totalTokens > 0, "no usage");
});

check("stream with a tool step", async () => {
  const { text, finish } = await read("use a tool");
  isEqual([text, finish], ["Looking. Done.", "stop"]);
});

check("cancel in mid-stream, then go on", async () => {
  const stop = new AbortController();
  const headers = session("cancel-ai-sdk");
  const begun = streamText({ model: hermes, prompt: "never end", headers, abortSignal: stop.signal });
  for await (const text of begun.textStream) if (text) break;
  stop.abort();
  isEqual((await ask("hello", { headers })).text, "Hello there.");
});

check("history sent whole goes on", async () => {
  const first = await ask("hello, sdk");
  const messages = [
    { role: "user", content: "hello, sdk" },
    ...first.response.messages,
    { role: "user", content: "how many?" },
  ];
  const again = await ask(undefined, { messages });
  const name = (one) => one.response.headers["x-hermes-session-id"];
  isEqual([again.text, name(again)], ["2 messages", name(first)]);
});

check("conversation by name", async () => {
  await ask("hello", { headers: session("named-ai-sdk") });
  isEqual((await ask("how many?", { headers: session("named-ai-sdk") })).text, "2 messages");
});

check("system message", async () => {
  isEqual((await ask("the word?", { system: "The word is maple." })).text, "maple");
});

check("client's own retry, one model call", async () => {
  // The first answer is lost on its way; the SDK asks again by itself.
  let lost = 0;
  const lossy = async (...request) => {
    const answer = await fetch(...request);
    if (lost++) return answer;
    await answer.body.cancel();
    throw Object.assign(new TypeError("fetch failed"), { cause: new Error("connection reset") });
  };
  const model = made({ fetch: lossy })("hermes-agent");
  const answer = await ask("slowly, sdk", { model, maxRetries: 2, headers: once("retry-sdk") });
  isEqual([answer.text, lost], ["asked once", 2]);
});

check("same key, another request: refused", async () => {
  await ask("hello", { headers: once("conflict-sdk") });
  isEqual((await refused(409, ask("another", { headers: once("conflict-sdk") }))).code, "idempotency_key_reused");
});

check("wrong key", async () => {
  const model = made({ apiKey: "not-the-key-of-this-gateway" })("hermes-agent");
  isEqual((await refused(401, ask("hello", { model }))).code, "invalid_api_key");
});

check("bad request names the field", async () => {
  const messages = [{ role: "user", content: "hello" }];
  const wrong = { model: made({ transformRequestBody: (body) => ({ ...body, messages: [] }) })("hermes-agent") };
  const { code, param } = await refused(400, ask(undefined, { messages, ...wrong }));
  isEqual([code, param], ["invalid_value", "messages"]);
});

check("failed turn: an error", async () => {
  isEqual((await refused(502, ask("fail, sdk"))).code, "agent_incomplete");
});

const failing = (prompt, headers = {}) => ask(prompt, { maxRetries: 2, headers }).catch(() => {});
const times = async (prompt) => (await ask(`how often? ${prompt}`)).text;

check(
  "failed turn: not run again",
  async () => {
    await failing("fail again, sdk");
    isEqual(await times("fail again, sdk"), "1");
  },
  { limit: "the AI SDK repeats every request that ended in a 5xx, and knows no header that says no" },
);

check("failed turn with a key: not run again", async () => {
  await failing("fail with a key, sdk", once("fail-sdk"));
  isEqual(await times("fail with a key, sdk"), "1");
});

check("stream that breaks: an error", async () => {
  let why = "no error";
  await read("break, sdk").catch((error) => (why = JSON.stringify(error)));
  isTrue(why.includes("does not want to"), why); // the error of the turn, not one about its form
});

await run();
