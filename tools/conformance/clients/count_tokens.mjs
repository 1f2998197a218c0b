// How many tokens each text has, by the tokenizer of OpenAI's models since GPT-4o: {name: text} in, {name: number} out.

import { readFileSync } from "node:fs";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";

const texts = JSON.parse(readFileSync(0, "utf8"));
const counts = Object.entries(texts).map(([name, text]) => [name, countTokens(text)]);
console.log(JSON.stringify(Object.fromEntries(counts)));
