// The Content-Security-Policy of the page of `polypath stream` allows its own style and script by their SHA-256.
// `node sums.mjs` checks both (exit code 1 if one is wrong), `node sums.mjs --write` renews them.

import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

const path = new URL('../../src/command/stream/page/index.html', import.meta.url);
const page = readFileSync(path, 'utf8');
let renewed = page;
for (const tag of ['style', 'script']) {
  const text = page.match(new RegExp(`<${tag}>([^]*?)</${tag}>`))[1];
  const sum = createHash('sha256').update(text).digest('base64');
  renewed = renewed.replace(new RegExp(`(${tag}-src [^;]*)'sha256-[^']*'`), `$1'sha256-${sum}'`);
}
if (renewed === page) {
  console.log('The sums are right.');
} else if (process.argv[2] === '--write') {
  writeFileSync(path, renewed);
  console.log('The sums are renewed.');
} else {
  console.error('The page changed, its sums did not: run this with --write.');
  process.exitCode = 1;
}
