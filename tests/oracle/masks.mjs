// Asks web-xgrammar for the masks along walks that check_masks.py took from us, and says where they differ.
// In: {vocabulary: [pieces of GPT-2's letters, "" for those that no text has], end: id}, then one walk a line,
// {name, grammar, text | schema | choice, tokens, masks}.  Out: one line for each, {name, steps, forced,
// differences: [text]} or {name, error}.  Usage: node masks.mjs INDEX_JS
import { readFileSync } from 'node:fs';
import Module from 'node:module';
import { createInterface } from 'node:readline';

// The package calls itself a module, and is CommonJS.
function load(path) {
  const module = new Module(path);
  module._compile(readFileSync(path, 'utf8'), path);
  return module.exports;
}

const xgrammar = load(process.argv[2]);
const escaped = (text) => JSON.stringify(text);


async function grammarOf(walk, compiler) {
  switch (walk.grammar) {
    case 'json_schema':
      return compiler.compileJSONSchema(JSON.stringify(walk.schema), false, -1, [',', ':'], true);
    case 'gbnf':
      return compiler.compileGrammar(walk.text);
    case 'choice':
      return compiler.compileGrammar('root ::= ' + walk.choice.map(escaped).join(' | '));
    case 'regex':
      return compiler.compileStructuralTag({ type: 'structural_tag', format: { type: 'regex', pattern: walk.text } });
    case 'tags':
      return compiler.compileStructuralTag(walk.schema);
    default:
      throw new Error('unknown kind ' + walk.grammar);
  }
}

function allowed(mask, size, bitsPerWord) {
  const out = new Set();
  for (let t = 0; t < size; t++) {
    const word = mask[Math.floor(t / bitsPerWord)];
    const bits = typeof word === 'string' ? parseInt(word, 16) : word;
    if ((bits >>> (t % bitsPerWord)) & 1) out.add(t);
  }
  return out;
}

// The bytes of a piece that is written in GPT-2's letters.
const byteOf = new Map();
for (let b = 0, next = 256; b < 256; b++) {
  const plain = (b > 32 && b < 127) || (b > 160 && b !== 173);
  byteOf.set(String.fromCodePoint(plain ? b : next), b);
  if (!plain) next++;
}
const bytesOf = (piece) => [...piece].map((letter) => byteOf.get(letter));

// Whether a text in UTF-8 may begin so, or be so.
function isText(bytes, whole) {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array(bytes), { stream: !whole });
    return true;
  } catch {
    return false;
  }
}

// Where one byte alone can follow, our mask may allow the canonical token alone.
function isForced(theirs, { vocabulary, end }) {
  if (theirs.has(end)) return theirs.size === 1;
  return new Set([...theirs].map((t) => [...vocabulary[t]][0])).size === 1;
}

function difference(ours, theirs, world) {
  const extra = [...ours].filter((t) => !theirs.has(t)), missing = [...theirs].filter((t) => !ours.has(t));
  const forced = isForced(theirs, world);
  const same = extra.length === 0 && (forced ? ours.size > 0 : missing.length === 0);
  return { forced, same, extra, missing };
}

async function compare(walk, world, compiler) {
  const matcher = await xgrammar.GrammarMatcher.createGrammarMatcher(await grammarOf(walk, compiler));
  const out = { name: walk.name, steps: walk.masks.length, forced: 0, differences: [] };
  const shown = (list) => list.slice(0, 12).map((t) => world.vocabulary[t] ?? `<${t}>`).join(' ');
  for (let i = 0, text = ''; i < walk.masks.length; i++) {
    const size = world.vocabulary.length;
    const theirs = allowed(await matcher.getNextTokenBitmask(), size, 32);
    const before = bytesOf(text);
    for (const t of theirs) {
      const more = t === world.end ? [] : bytesOf(world.vocabulary[t]);
      if (!isText([...before, ...more], t === world.end)) theirs.delete(t);
    }
    const got = difference(allowed(walk.masks[i], size, 4), theirs, world);
    out.forced += got.forced;
    if (!got.same)
      out.differences.push(`behind ${escaped(text)}: only ours ${shown(got.extra)}; only theirs ${shown(got.missing)}`);
    if (i === walk.tokens.length) break;
    text += world.vocabulary[walk.tokens[i]];
    if (!matcher.acceptToken(walk.tokens[i])) {
      out.differences.push(`${escaped(text)} is not taken`);
      break;
    }
  }
  matcher.dispose();
  return out;
}

let world, compiler;
for await (const line of createInterface({ input: process.stdin })) {
  const given = JSON.parse(line);
  if (!world) {
    world = given;
    const info = await xgrammar.TokenizerInfo.createTokenizerInfo(
        world.vocabulary, 'byte_level', false, world.vocabulary.length, [world.end]);
    compiler = await xgrammar.GrammarCompiler.createGrammarCompiler(info);
    continue;
  }
  let said;
  try {
    said = await compare(given, world, compiler);
  } catch (error) {
    said = { name: given.name, error: String(error.message ?? error).slice(0, 300) };
  }
  console.log(JSON.stringify(said));
}
