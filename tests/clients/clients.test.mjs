// The npm clients of OpenAI and Ollama against `bitnet-edge serve`; URL is set by test_clients.py.
import test from "node:test";
import assert from "node:assert/strict";
import OpenAI from "openai";
import { Ollama } from "ollama";

const url = process.env.URL;
const messages = [{ role: "user", content: "Two teas and a scone, please." }];

test("openai", async () => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
  assert.equal((await client.models.list()).data.length, 1);
  const whole = await client.chat.completions.create({ model: "any", messages, temperature: 0, max_tokens: 16 });
  let text = "";
  for await (const chunk of await client.chat.completions.create({ model: "any", messages, temperature: 0, max_tokens: 16, stream: true }))
    text += chunk.choices[0].delta.content ?? "";
  assert.equal(text, whole.choices[0].message.content);
  await assert.rejects(client.chat.completions.create({ model: "any", messages, n: 0 }), { status: 400 });
});

test("ollama", async () => {
  const client = new Ollama({ host: url });
  const options = { temperature: 0, num_predict: 16 };
  const whole = await client.chat({ model: "any", messages, options });
  let text = "";
  for await (const part of await client.chat({ model: "any", messages, options, stream: true })) text += part.message.content;
  assert.equal(text, whole.message.content);
});
